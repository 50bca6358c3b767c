"""What the rows of a batch came to: rows of logits to draw tokens from, and tokens that need no draw.

A greedy row that leaves early, and that nothing changes or asks logprobs of, takes the token that its head found
likeliest: no row over the whole vocabulary is made for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, Place, Verdict, Verifier
from offramp.model.executor import Hidden


@dataclass(frozen=True, slots=True)
class Outcome:
    """Valid until the next one. Places count entries of the batch's logit rows."""

    logits: NDArray[np.float32]  # [rows to draw from, vocab], by rising place
    exit_layers: Ids  # [places], layers run to get there
    prompt_hidden: list[Hidden | None]  # [seqs], final hidden states of the prompt rows asked for
    tokens: Mapping[int, int] = field(default_factory=dict)  # by place, those that need no draw

    def judge(self, verifier: Verifier, places: Sequence[Place]) -> list[Verdict]:
        """One verdict a place."""
        if not self.tokens:
            return verifier.judge(places, self.logits)
        drawn = [self._moved(place) for place in places if place.row not in self.tokens]
        verdicts = iter(verifier.judge(drawn, self.logits) if drawn else ())
        return [
            next(verdicts) if token is None else Verdict(token_ids=(token,), accepted=(), rows=(0,))
            for token in (self.tokens.get(place.row) for place in places)
        ]

    def rows_of(self, place: Place) -> NDArray[np.float32]:
        """The logits of a place and its drafts, [1 + draft nodes, vocab]; none where the token needs no draw."""
        if place.row in self.tokens:
            return self.logits[:0]
        first = self._moved(place).row
        return self.logits[first : first + 1 + len(place.tree)]

    def _moved(self, place: Place) -> Place:
        """Where the rows of its logits are."""
        num_missing = sum(other < place.row for other in self.tokens)
        return Place(place.sequence, place.tree, place.row - num_missing) if num_missing else place
