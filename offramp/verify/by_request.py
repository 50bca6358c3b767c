"""Who judges a place: the engine's verifier, or the little model's own rule where that writes for the request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Little, Place, Verdict, Verifier


class VerifierByRequest:
    """Both see the same rows; a request is judged by one of them for its life."""

    def __init__(self, verifier: Verifier, little: Little) -> None:
        self._verifier = verifier
        self._little = little

    def judge(self, places: Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        written = [place for place in places if place.sequence.request.big_little is not None]
        if not written:
            return self._verifier.judge(places, logits)
        others = [place for place in places if place.sequence.request.big_little is None]
        of_little = iter(self._little.judge(written, logits))
        of_others = iter(self._verifier.judge(others, logits) if others else ())
        return [next(of_others if place.sequence.request.big_little is None else of_little) for place in places]
