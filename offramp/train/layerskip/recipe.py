"""Every setting of a fine-tuning, as it is kept beside its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from offramp.errors import CorruptModelError
from offramp.train.finite import check_finite
from offramp.train.layerskip.schedule import Curriculum


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides the outcome, besides the model, the data and, under a budget of minutes, the machine."""

    seed: int = 0
    rank: int | None = 7  # of the changes to the layers' matrices; None: the matrices themselves are trained
    steps: int | None = None
    minutes: float | None = 60.0  # of computing; training ends at whichever comes first
    learning_rate: float = 2e-3
    batch_rows: int = 896  # tokens a step behind the shared beginning, padding included
    max_tokens: int = 512  # longer examples are left out
    exits: tuple[int, ...] = ()  # layers before each exit
    dropout: float = 0.1  # chance that a sample skips the last layer
    exit_scale: float = 0.5  # weight of the exits' losses, before they are normalized
    leave_at: float = 0.9  # probability of its target at which a token leaves at an exit that is on
    leaving: float = 0.5  # share of the samples whose tokens may leave; deeper layers learn from projected K/V
    curriculum: Curriculum = "rotational"
    period: int = 4  # of the rotational curriculum
    coverage: float = 0.999  # share of the answers' tokens that the exits' vocabulary has
    most_ids: int = 8192  # in that vocabulary
    other_ids: int = 1024  # drawn at each step to stand for the rest of the vocabulary
    held_out: float = 0.04  # share of prompts kept for measuring
    workers: int | None = None  # parts of a step that are computed side by side; None: as many as threads

    def __post_init__(self) -> None:
        check_finite(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Recipe:
        """Raises CorruptModelError for what is no recipe."""
        unknown = values.keys() - {field.name for field in fields(Recipe)}
        if unknown or not isinstance(values.get("exits"), list):
            raise CorruptModelError(
                f"the training's recipe is not one of this version: {sorted(unknown) or 'no exits'}",
                hint="the file is damaged, or another version of offramp wrote it",
            )
        return Recipe(**{**values, "exits": tuple(values["exits"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a checkpoint belongs to: a recipe for one model and one file of pairs, both by hash."""

    recipe: Recipe
    model: str
    data: str

    def as_json(self) -> dict[str, Any]:
        return {**self.recipe.as_json(), "model": self.model, "data": self.data}


def default_exits(num_layers: int) -> tuple[int, ...]:
    """Every second layer, without the first few, which see too little, and the last."""
    first = max(1, num_layers // 8)
    return tuple(range(first + first % 2, num_layers, 2)) or tuple(range(1, num_layers))
