"""`offramp train drafter --kind eagle`: from a model and prompts to a drafter pack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from offramp.core import Ids
from offramp.draft.pack import DrafterPack
from offramp.draft.pack_config import DrafterConfig
from offramp.draft.pack_file import check_drafter_target, write_drafter
from offramp.draft.side import side_config
from offramp.llm.loading import LoadedModel
from offramp.model.quantize import dequantize
from offramp.train.drafter.eagle import Eagle
from offramp.train.drafter.fit import fit
from offramp.train.drafter.material import Prompts, gather
from offramp.train.drafter.provenance import Stood, provenance
from offramp.train.drafter.recipe import Recipe, check_taps, default_taps
from offramp.train.drafter.side import SideNet, net_of, new_trained
from offramp.train.drafter.validation import accepted_rates, line
from offramp.train.exits.answers import AT_ONCE
from offramp.train.exits.fit_all import lm_head
from offramp.train.exits.start import start
from offramp.train.exits.training import Training
from offramp.train.exits.work import kept_if_worth_it
from offramp.train.pairs import read_prompts
from offramp.train.precision import matrix_dtype
from offramp.train.say import Say
from offramp.train.source import open_source


def train_eagle(
    model: str,
    prompts_file: Path,
    pack_folder: Path,
    recipe: Recipe,
    *,
    weights: str,
    threads: int | None,
    work: Path,
    say: Say,
) -> DrafterPack:
    """Train, resuming what lies in `work`, and write the pack. Raises OfframpError."""
    check_drafter_target(pack_folder)
    prompts = Prompts(prompts_file, read_prompts(prompts_file))
    num_layers = open_source(model).config.num_layers
    recipe = replace(recipe, taps=recipe.taps or default_taps(num_layers))
    check_taps(recipe.taps, num_layers)
    training = start(
        model, prompts_file, recipe, weights=weights, threads=threads, max_num_seqs=AT_ONCE, work=work, say=say
    )
    with kept_if_worth_it(training.work):
        return write_drafter(pack_folder, _trained(training, Path(model).name, prompts))


def _trained(training: Training[Recipe], model_name: str, prompts: Prompts) -> DrafterPack:
    """The pack, from what is in the work folder on. Raises InvalidRequestError where answers are no use."""
    recipe = training.recipe
    material = gather(training, prompts, recipe.taps)
    net = _new_net(training.loaded, recipe, material.vocab_ids)
    fitted = fit(training, Eagle(net, material, recipe), material.taught)
    weights = net.weights(material.vocab_ids)
    rates, tested = accepted_rates(
        net_of(weights, net), material.kept, material.states, material.vocab_ids, recipe.unrolled
    )
    training.tell(f"as it is kept: {line(rates)}", always=True)
    about = provenance(training, prompts, material, fitted, Stood(rates, tested))
    return DrafterPack(config=_config(training, model_name, material.vocab_ids, about), weights=weights)


def _new_net(loaded: LoadedModel, recipe: Recipe, vocab_ids: Ids) -> SideNet:
    source, dtype = open_source(loaded.name).weights(loaded.weights), matrix_dtype()
    config = side_config(loaded.config, recipe.width, recipe.window)
    final_norm = torch.from_numpy(source.vector("final_norm").copy())
    embedding = torch.from_numpy(dequantize(source.matrix("embedding")) * loaded.config.embedding_scale)
    return SideNet(
        config,
        new_trained(config, len(recipe.taps), final_norm, recipe.seed),
        embedding,
        lm_head(source, vocab_ids).to(dtype),
        final_norm,
        dtype,
    )


def _config(training: Training[Recipe], name: str, vocab_ids: Ids, about: dict[str, Any]) -> DrafterConfig:
    recipe, config = training.recipe, training.loaded.config
    return DrafterConfig(
        model=training.loaded.source_hash,
        model_name=name,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        taps=recipe.taps,
        width=recipe.width,
        window=recipe.window,
        vocabulary=len(vocab_ids),
        provenance=about,
    )
