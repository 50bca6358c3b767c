"""`offramp train drafter`: from a model and prompts to a drafter pack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from offramp.core import Ids
from offramp.draft.pack import DrafterPack
from offramp.draft.pack_config import DrafterConfig
from offramp.draft.pack_file import check_drafter_target, write_drafter
from offramp.draft.side import side_config
from offramp.errors import InvalidRequestError
from offramp.llm.llm import LLM
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.serving import Serving
from offramp.model.quantize import dequantize
from offramp.native.threads import default_threads
from offramp.prompt_lines import file_hash
from offramp.train.clock import ComputeClock
from offramp.train.drafter.fit import Course, fit
from offramp.train.drafter.recipe import ANSWER_SHARE, Recipe, check_taps, default_taps
from offramp.train.drafter.side import SideNet, net_of, new_trained
from offramp.train.drafter.states import Text, capture, place_texts, row_bytes
from offramp.train.drafter.validation import accepted_rates, expected_tokens, line
from offramp.train.exits.answers import AT_ONCE, Answer, read_answers, write_answers
from offramp.train.exits.fit_all import lm_head
from offramp.train.exits.targets import head_vocabulary
from offramp.train.exits.training import Training
from offramp.train.exits.work import kept_if_worth_it, open_work
from offramp.train.pairs import held_out, read_prompts
from offramp.train.say import Say
from offramp.train.source import open_source


@dataclass(frozen=True, slots=True)
class Prompts:
    """Where they come from, and which of them are kept aside."""

    file: Path
    texts: Sequence[str]

    def split(self, texts: Sequence[Text], recipe: Recipe) -> tuple[list[Text], list[Text]]:
        """Those to learn from, and those kept for measuring."""
        kept = [t for t in texts if held_out(self.texts[t.number], recipe.held_out, recipe.seed)]
        taught = [t for t in texts if not held_out(self.texts[t.number], recipe.held_out, recipe.seed)]
        if not kept or not taught:
            raise InvalidRequestError(
                f"{len(texts)} usable prompts are too few to keep {recipe.held_out:.0%} of them for measuring",
                hint="give more prompts, or more --minutes",
            )
        return taught, kept


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
    threads = threads or default_threads()
    loaded = load_model(model, weights=weights, threads=threads, max_num_seqs=AT_ONCE)
    torch.set_num_threads(threads)
    folder = open_work(work, _identity(loaded, recipe, prompts_file))
    training = Training(recipe, loaded, folder, ComputeClock(threads, before=folder.state["seconds"]), say)
    with kept_if_worth_it(folder):
        return write_drafter(pack_folder, _trained(training, Path(model).name, prompts))


def _trained(training: Training[Recipe], model_name: str, prompts: Prompts) -> DrafterPack:
    """The pack, from what is in the work folder on. Raises InvalidRequestError where answers are no use."""
    recipe, loaded = training.recipe, training.loaded
    answers = _answers(training, prompts.texts)
    most_rows = recipe.disk // row_bytes(len(recipe.taps), loaded.config.hidden_size)
    texts = place_texts(answers, recipe.context, most_rows)
    try:
        taught, kept = prompts.split(texts, recipe)
    except InvalidRequestError:
        training.work.discard()  # the same prompts would be answered in the same way
        raise
    if len(texts) < len(answers):
        told = f"{len(texts)} of {len(answers)} answers are used: the others are short, or exceed --disk"
        training.tell(told, always=True)
    numbers = {text.number for text in taught}
    vocab_ids = head_vocabulary((a for a in answers if a.number in numbers), recipe.coverage, recipe.vocabulary)
    states = capture(
        loaded.executor,
        answers,
        texts,
        recipe.taps,
        training.work,
        lambda done: training.tell(f"hidden states of {done} of {len(texts)} answers"),
    )
    net = _new_net(loaded, recipe, vocab_ids)
    state = fit(training, net, Course(taught, kept, states, vocab_ids))
    weights = net.weights(vocab_ids)
    rates, tested = accepted_rates(net_of(weights, net), kept, states, vocab_ids, recipe.unrolled)
    training.tell(f"as it is kept: {line(rates)}", always=True)
    about = {
        "recipe": recipe.as_json(),
        "prompts": {"file": prompts.file.name, "sha256": file_hash(prompts.file), "answered": len(answers)},
        "tokens": sum(text.num_drafts for text in taught),
        "weights": dict(loaded.formats),
        "steps": state.step,
        "minutes": round(training.clock.seconds / 60, 1),
        "validation": {
            "texts": len(kept),
            "tested": tested,
            "accepted": [round(rate, 4) for rate in rates],
            "tokens_a_draft": round(expected_tokens(rates), 3),
        },
        "curve": training.work.state["curve"],
    }
    return DrafterPack(config=_config(training, model_name, vocab_ids, about), weights=weights)


def _answers(training: Training[Recipe], prompts: Sequence[str]) -> list[Answer]:
    """Those of the work folder, after as many more were written as there is time for."""
    recipe, work = training.recipe, training.work
    if not work.state.get("answered"):

        def may_go_on(done: int) -> bool:
            training.tell(f"answered {done} of {len(prompts)} prompts")
            return done == 0 or training.used < ANSWER_SHARE

        with LLM.from_loaded(training.loaded, Serving(draft="off", max_num_seqs=AT_ONCE)) as llm:
            write_answers(
                llm,
                prompts,
                work.answers,
                max_tokens=recipe.max_tokens,
                temperature=recipe.temperature,
                seed=recipe.seed,
                may_go_on=may_go_on,
                say=training.say,
                at_once=4 * AT_ONCE,  # so that few sequences seldom run alone
            )
        work.note(answered=True)
    return read_answers(work.answers)


def _new_net(loaded: LoadedModel, recipe: Recipe, vocab_ids: Ids) -> SideNet:
    source = open_source(loaded.name).weights(loaded.weights)
    config = side_config(loaded.config, recipe.width, recipe.window)
    final_norm = torch.from_numpy(source.vector("final_norm").copy())
    embedding = torch.from_numpy(dequantize(source.matrix("embedding")) * loaded.config.embedding_scale)
    return SideNet(
        config,
        new_trained(config, len(recipe.taps), final_norm, recipe.seed),
        embedding,
        lm_head(source, vocab_ids).to(torch.bfloat16),
        final_norm,
        torch.bfloat16,
    )


def _identity(loaded: LoadedModel, recipe: Recipe, prompts_file: Path) -> dict[str, object]:
    """What must not change between a training and its resumption; its end may."""
    settings = {name: value for name, value in recipe.as_json().items() if name not in ("minutes", "steps")}
    return {
        "model": loaded.source_hash,
        "weights": dict(loaded.formats),
        "prompts": file_hash(prompts_file),
        **settings,
    }


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
