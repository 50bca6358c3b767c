"""What the engine asks of a grammar: which tokens may come next. How one is made is no business of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Matcher(Protocol):
    """Where one sequence stands in its grammar."""

    @property
    def ended(self) -> bool:
        """The output is complete, and nothing but an end token may follow."""
        ...

    def allowed(self) -> NDArray[np.bool_]:
        """[vocab]: tokens that may come next, end tokens exactly where the output may end. At least one.

        Valid until the next call of `advance` or `rewind`. Raises OfframpError where the grammar can't go on.
        """
        ...

    def advance(self, token_id: int) -> None:
        """An allowed token comes next."""
        ...

    def rewind(self, count: int) -> None:
        """The last so many tokens did not come after all."""
        ...

    def follows(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens may come next, in this order; moves nothing."""
        ...

    def fork(self) -> Matcher:
        """Another one at the same place: what either follows from here on is no matter to the other."""
        ...

    def forced(self, most: int) -> tuple[int, ...]:
        """Tokens that come next whatever the model says, as far as is cheap to know, and at most so many."""
        ...


class Grammar(Protocol):
    """What the output of a request must be."""

    def matcher(self) -> Matcher:
        """For one sequence without output."""
        ...
