"""The big model's word on what the little one wrote.

What: a token of the little model stands where it is the one that plain decoding draws there, or where its loss under
the big model, -log p, is below the policy's rollback limit; the first that does not stand is replaced by the token that
plain decoding draws, and what was written behind it is gone. Where the little model wrote nothing more, that token
comes from the big model.
When it helps: a little model that is much faster, and whose other words are good ones, too.
Cost: a draw for each token, and a softmax over the vocabulary where that is another token than the one written.
Exactness: lossy, but with the limit 0, where it is plain decoding, greedy or sampled. Each token depends on the text
before it and the policy: what did not run as a row is judged all the same, at the place where it would have stood.
Source: Big Little Decoder (arXiv 2302.07863).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.core import Place, Verdict, Written
from offramp.errors import OfframpError
from offramp.sample.sampler import RowJob, adjusted, job_behind
from offramp.verify.exact import SampleRows


@dataclass(frozen=True, slots=True)
class WrittenPlace:
    """A place, and all that the little model wrote there: the draft that ran is its beginning."""

    place: Place
    token_ids: tuple[int, ...]
    rollback: float


def judge_written(
    places: Sequence[WrittenPlace], logits: NDArray[np.float32], sample_rows: SampleRows
) -> list[Verdict]:
    """One verdict a place; logits [rows, vocab]. All walk together, one token at a time."""
    walks = [_Walk(each) for each in places]
    alive = walks
    while alive:
        rows = [walk.row for walk in alive]
        jobs = [walk.job() for walk in alive]
        drawn = sample_rows(logits[rows], jobs)
        alive = [
            walk
            for walk, job, token in zip(alive, jobs, drawn, strict=True)
            if walk.advance(logits[walk.row], job, token)
        ]
    return [walk.verdict() for walk in walks]


@dataclass(slots=True, eq=False)
class _Walk:
    """From the place's last token to the first that the big model decides itself."""

    written: WrittenPlace
    token_ids: list[int] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    num_little: int = 0
    rolled_back: bool = False
    error: OfframpError | None = None

    @property
    def row(self) -> int:
        """The row of logits that decides the next token."""
        return self.written.place.row + len(self.token_ids)

    def job(self) -> RowJob:
        return job_behind(self.written.place.sequence, self.token_ids, None)

    def advance(self, row: NDArray[np.float32], job: RowJob, drawn: int | OfframpError) -> bool:
        """Take the next token; True where the row behind it ran, too."""
        if isinstance(drawn, OfframpError):
            self.error = drawn
            return False
        place, proposed = len(self.token_ids), self.written.token_ids
        token = proposed[place] if place < len(proposed) else None
        if token is None or not (token == drawn or loss(adjusted(row, job), token) < self.written.rollback):
            self.rolled_back = token is not None
            self.token_ids.append(drawn)
            return False
        if token != drawn:
            self.differing.append(place)
        self.num_little += 1
        self.token_ids.append(token)
        return place < len(self.written.place.tree)

    def verdict(self) -> Verdict:
        return Verdict(
            token_ids=tuple(self.token_ids),
            accepted=tuple(range(min(self.num_little, len(self.written.place.tree)))),
            rows=tuple(range(len(self.token_ids))),
            error=self.error,
            written=Written(self.num_little, tuple(self.differing), self.rolled_back),
        )


def loss(row: NDArray[np.float32], token: int) -> float:
    """-log p of a token in a row of logits [vocab] with a finite maximum, in nats; inf where it can't come."""
    best = row.max()
    with np.errstate(over="ignore"):  # from the largest to the smallest f32 is -inf, whose exponential is right
        below = row - best
    return math.log(float(np.exp(below).sum(dtype=np.float64))) - float(below[token])
