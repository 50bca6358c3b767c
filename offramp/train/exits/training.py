"""One training on the model's own answers under way: what its phases share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from offramp.llm.loading import LoadedModel
from offramp.train.clock import ComputeClock
from offramp.train.exits.work import WorkFolder
from offramp.train.say import Say

TELL_SECONDS = 4.0  # of computing between two lines


class Timed(Protocol):
    """A recipe that says how long."""

    @property
    def minutes(self) -> float: ...


R = TypeVar("R", bound=Timed)


@dataclass(slots=True)
class Training(Generic[R]):
    """The recipe, the model, where work is kept, how much time is used, and who is told."""

    recipe: R
    loaded: LoadedModel
    work: WorkFolder
    clock: ComputeClock
    say: Say
    _told: float = float("-inf")

    @property
    def used(self) -> float:
        """Share of the minutes."""
        return self.clock.seconds / (60 * self.recipe.minutes)

    def tell(self, line: str, *, always: bool = False) -> None:
        """Progress for people, now and then or `always`; what time was used is kept along with it."""
        seconds = self.clock.seconds
        self.work.note(seconds=seconds)
        if always or seconds - self._told > TELL_SECONDS:
            self._told = seconds
            self.say(f"{self.used:.0%} of the time: {line}")
