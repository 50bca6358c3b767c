"""One training of exits under way: what its phases share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offramp.llm.loading import LoadedModel
from offramp.train.clock import ComputeClock
from offramp.train.exits.recipe import Recipe
from offramp.train.exits.work import WorkFolder


@dataclass(frozen=True, slots=True)
class Training:
    """The recipe, the model, where work is kept, how much time is used, and who is told."""

    recipe: Recipe
    loaded: LoadedModel
    work: WorkFolder
    clock: ComputeClock
    say: Callable[[str], None]

    @property
    def used(self) -> float:
        """Share of the minutes."""
        return self.clock.seconds / (60 * self.recipe.minutes)

    def tell(self, line: str) -> None:
        """Progress for people; what time was used is kept along with it."""
        self.work.note(seconds=self.clock.seconds)
        self.say(f"{self.used:.0%} of the time: {line}")
