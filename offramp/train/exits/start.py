"""How every training on the model's own answers begins: the model loaded, its work folder open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from offramp.llm.loading import LoadedModel, load_model
from offramp.native.threads import default_threads
from offramp.prompt_lines import file_hash
from offramp.train.clock import ComputeClock
from offramp.train.exits.training import Timed, Training
from offramp.train.exits.work import open_work
from offramp.train.say import Say

ENDS = ("minutes", "steps")
"""Settings that may change from a training to its resumption."""


class KeptRecipe(Timed, Protocol):
    """A recipe that can be told apart from others."""

    def as_json(self) -> Mapping[str, Any]: ...


R = TypeVar("R", bound=KeptRecipe)


def start(
    model: str,
    prompts_file: Path,
    recipe: R,
    *,
    weights: str,
    threads: int | None,
    work: Path,
    say: Say,
    max_num_seqs: int = 16,
) -> Training[R]:
    """New, or the one that lies in `work`. Raises OfframpError, also for another training's folder."""
    threads = threads or default_threads()
    loaded = load_model(model, weights=weights, threads=threads, max_num_seqs=max_num_seqs)
    torch.set_num_threads(threads)
    folder = open_work(work, _identity(loaded, recipe, prompts_file))
    return Training(recipe, loaded, folder, ComputeClock(threads, before=folder.state["seconds"]), say)


def _identity(loaded: LoadedModel, recipe: KeptRecipe, prompts_file: Path) -> dict[str, object]:
    """What must not change between a training and its resumption."""
    settings = {name: value for name, value in recipe.as_json().items() if name not in ENDS}
    return {
        "model": loaded.source_hash,
        "weights": dict(loaded.formats),
        "prompts": file_hash(prompts_file),
        **settings,
    }
