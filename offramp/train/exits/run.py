"""`offramp train exits`: from a model and prompts to an exit pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.exits.pack import ExitPack
from offramp.exits.pack_config import PackConfig
from offramp.exits.pack_file import check_pack_target, write_pack
from offramp.llm.llm import LLM
from offramp.llm.serving import Serving
from offramp.prompt_lines import file_hash
from offramp.train.exits.answers import Answer, check_prompts, check_usable, part_of, read_answers, write_answers
from offramp.train.exits.capture import capture
from offramp.train.exits.fit_all import fit_all
from offramp.train.exits.recipe import ANSWER_SHARE, Recipe, check_layers, default_layers
from offramp.train.exits.start import start
from offramp.train.exits.targets import head_vocabulary
from offramp.train.exits.training import Training
from offramp.train.exits.work import kept_if_worth_it
from offramp.train.pairs import read_prompts
from offramp.train.say import Say
from offramp.train.source import open_source


def train_exits(
    model: str,
    prompts_file: Path,
    pack_folder: Path,
    recipe: Recipe,
    *,
    weights: str,
    threads: int | None,
    work: Path,
    say: Say,
) -> ExitPack:
    """Train, resuming what lies in `work`, and write the pack. Raises OfframpError."""
    check_pack_target(pack_folder)
    prompts = read_prompts(prompts_file)
    check_prompts(prompts, recipe.held_out, recipe.seed)
    num_layers = open_source(model).config.num_layers
    recipe = replace(recipe, layers=recipe.layers or default_layers(num_layers))
    check_layers(recipe.layers, num_layers)
    training = start(model, prompts_file, recipe, weights=weights, threads=threads, work=work, say=say)
    with kept_if_worth_it(training.work):
        return write_pack(pack_folder, _trained(training, Path(model).name, prompts, prompts_file))


def _trained(training: Training[Recipe], model_name: str, prompts: Sequence[str], prompts_file: Path) -> ExitPack:
    """The pack, from what is in the work folder on. Raises InvalidRequestError where answers are no use."""
    recipe, folder, loaded = training.recipe, training.work, training.loaded
    answers = _answers(training, prompts)
    parts = {answer.number: part_of(prompts[answer.number], recipe.held_out, recipe.seed) for answer in answers}
    try:
        check_usable(answers, parts)
    except InvalidRequestError:
        folder.discard()  # the same prompts would be answered in the same way
        raise
    taught = (answer for answer in answers if parts[answer.number] == "heads")
    vocab_ids = head_vocabulary(taught, recipe.coverage, recipe.vocabulary)
    captured = capture(
        loaded.executor,
        answers,
        recipe.layers,
        folder,
        lambda done: training.tell(f"hidden states of {done} of {len(answers)} answers"),
    )
    exits, measured = fit_all(training, captured, parts, vocab_ids)
    about = _provenance(training, prompts_file, answers, measured)
    return ExitPack(config=_pack_config(training, model_name, vocab_ids, about), exits=exits)


def _answers(training: Training[Recipe], prompts: Sequence[str]) -> list[Answer]:
    """Those of the work folder, after as many more were written as there is time for."""
    recipe, work = training.recipe, training.work
    path = work.answers
    if not work.state.get("answered"):

        def may_go_on(done: int) -> bool:
            training.tell(f"answered {done} of {len(prompts)} prompts")
            return done == 0 or training.used < ANSWER_SHARE

        with LLM.from_loaded(training.loaded, Serving(draft="off")) as llm:
            write_answers(
                llm,
                prompts,
                path,
                max_tokens=recipe.max_tokens,
                temperature=recipe.temperature,
                seed=recipe.seed,
                may_go_on=may_go_on,
                say=training.say,
            )
        work.note(answered=True)
    return [answer for answer in read_answers(path) if answer.num_rows > 0]


def _provenance(
    training: Training[Recipe], prompts_file: Path, answers: Sequence[Answer], measured: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "recipe": training.recipe.as_json(),
        "prompts": {"file": prompts_file.name, "sha256": file_hash(prompts_file), "answered": len(answers)},
        "tokens": sum(answer.num_rows for answer in answers),
        "weights": dict(training.loaded.formats),
        "minutes": round(training.clock.seconds / 60, 1),
        "validation": measured,
    }


def _pack_config(training: Training[Recipe], name: str, vocab_ids: Ids, about: dict[str, Any]) -> PackConfig:
    recipe, loaded = training.recipe, training.loaded
    return PackConfig(
        model=loaded.source_hash,
        model_name=name,
        num_layers=loaded.config.num_layers,
        hidden_size=loaded.config.hidden_size,
        vocab_size=loaded.config.vocab_size,
        kind="adapter",
        layers=recipe.layers,
        rank=recipe.rank,
        vocabulary=len(vocab_ids),
        predictors=recipe.predictors,
        provenance=about,
    )
