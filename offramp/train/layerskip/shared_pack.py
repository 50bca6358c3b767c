"""The exit pack of a fine-tuned directory: the model's own norm and head at every exit, over reduced vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from offramp.core import Ids
from offramp.exits.pack import ExitHead, ExitPack
from offramp.exits.pack_config import PackConfig
from offramp.exits.pack_file import write_pack
from offramp.model.checkpoint import open_checkpoint
from offramp.model.heads import HeadWeights
from offramp.train.layerskip.recipe import Recipe

PACK = "exits"
"""Its folder, below the model's."""


def write_shared_pack(
    directory: Path,
    model: str,
    ranked: Ids,
    vocabularies: Mapping[int, int],
    recipe: Recipe,
    figures: Mapping[str, Any],
) -> ExitPack:
    """Bound to the weights that lie in `directory`; `vocabularies`: how many of the `ranked` ids each exit knows."""
    written = open_checkpoint(directory)
    heads = {size: HeadWeights(vocab_ids=np.sort(ranked[:size])) for size in set(vocabularies.values())}
    config = PackConfig(
        model=written.source_hash(),
        model_name=f"{Path(model).name}, fine-tuned for early exit",
        num_layers=written.config.num_layers,
        hidden_size=written.config.hidden_size,
        vocab_size=written.config.vocab_size,
        kind="shared",
        layers=recipe.exits,
        vocabulary=tuple(vocabularies[layer] for layer in recipe.exits),
        provenance={"recipe": recipe.as_json(), "figures": dict(figures), "prompts": figures.get("data")},
    )
    exits = {layer: ExitHead(heads[vocabularies[layer]]) for layer in recipe.exits}
    return write_pack(directory / PACK, ExitPack(config=config, exits=exits))
