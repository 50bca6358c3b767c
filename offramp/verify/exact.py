"""The exact verifier.

What: a draft token stands exactly where it is the token that plain sampling draws; the first difference yields that
token instead. Processors, and the grammar, see the accepted prefix.
When it helps: always available; the verifier of the mode `lossless`. It accepts a little less often than rejection
sampling would from a sampled draft, and as often from greedy or n-gram drafts.
Cost: one draw for each token that the step adds; nodes off the accepted path are never drawn.
Exactness: the output equals plain decoding token for token, greedy or sampled, for chains and trees, whatever the
drafter proposed, since a draw is a function of (distribution, seed, choice, output position).
Source: our own; the draw is the Gumbel-max trick with keyed noise (`offramp.sample.race`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Place, Verdict
from offramp.errors import OfframpError
from offramp.sample.sampler import RowJob, job_behind

SampleRows = Callable[[NDArray[np.float32], Sequence[RowJob]], list[int | OfframpError]]
"""logits [rows, vocab] and one job a row -> a token or an error for each row."""


class ExactVerifier:
    """Walks all trees together, one depth at a time, drawing only at accepted places."""

    def __init__(self, sample_rows: SampleRows) -> None:
        self._sample_rows = sample_rows

    def judge(self, places: Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        walks = [_Walk(place) for place in places]
        try:
            self._walk(walks, logits)
        finally:
            for walk in walks:
                walk.rewind()
        return [walk.verdict() for walk in walks]

    def _walk(self, walks: Sequence[_Walk], logits: NDArray[np.float32]) -> None:
        alive = [walk for walk in walks if walk.look()]
        while alive:
            rows = [walk.row for walk in alive]
            whole = rows == list(range(len(logits)))
            drawn = self._sample_rows(logits if whole else logits[rows], [walk.job() for walk in alive])
            alive = [walk for walk, token in zip(alive, drawn, strict=True) if walk.advance(token) and walk.look()]


class _Walk:
    """From the root of one tree to the first token that no draft foresaw."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._node = -1
        self._token_ids: list[int] = []
        self._accepted: list[int] = []
        self._rows: list[int] = []
        self._error: OfframpError | None = None
        self._allowed: NDArray[np.bool_] | None = None

    @property
    def row(self) -> int:
        """The logits row that decides the next token."""
        return self._place.row + 1 + self._node

    def look(self) -> bool:
        """Ask the grammar what may come here; False where it can't go on."""
        matcher = self._place.sequence.matcher
        if matcher is not None:
            try:
                self._allowed = matcher.allowed()
            except OfframpError as error:
                self._error = error
                return False
        return True

    def rewind(self) -> None:
        """Leave the sequence's matcher as it was."""
        matcher = self._place.sequence.matcher
        if matcher is not None and self._accepted:
            matcher.rewind(len(self._accepted))

    def job(self) -> RowJob:
        return job_behind(self._place.sequence, self._token_ids, self._allowed)

    def advance(self, drawn: int | OfframpError) -> bool:
        """Take the drawn token; True when a draft foresaw it, so that the walk goes on behind that draft."""
        if isinstance(drawn, OfframpError):
            self._error = drawn
            return False
        self._token_ids.append(drawn)
        self._rows.append(1 + self._node)
        tree = self._place.tree
        for node in range(self._node + 1, len(tree)):
            if tree.parents[node] == self._node and tree.token_ids[node] == drawn:
                self._node = node
                self._accepted.append(node)
                if self._place.sequence.matcher is not None:
                    self._place.sequence.matcher.advance(drawn)
                return True
        return False

    def verdict(self) -> Verdict:
        return Verdict(
            token_ids=tuple(self._token_ids),
            accepted=tuple(self._accepted),
            rows=tuple(self._rows),
            error=self._error,
        )
