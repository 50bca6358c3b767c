"""Each place under the verifier that its request names.

What: hands every place to the exact verifier, or to the rejection verifier.
When it helps: requests choose one by one.
Cost: none beside the verifiers' own.
Exactness: that of the verifier named.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import REJECTION, Place, Verdict
from offramp.verify.exact import ExactVerifier, SampleRows
from offramp.verify.rejection import RejectionVerifier


class VerifierChoice:
    """`sample_rows` makes the plain draws of both."""

    def __init__(self, sample_rows: SampleRows) -> None:
        self._exact = ExactVerifier(sample_rows)
        self._rejection = RejectionVerifier(sample_rows)

    def judge(self, places: Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        rejecting = [place for place in places if _rejects(place)]
        if not rejecting:
            return self._exact.judge(places, logits)
        exact = [place for place in places if not _rejects(place)]
        verdicts = {
            place.row: verdict
            for some, verifier in ((exact, self._exact), (rejecting, self._rejection))
            if some
            for place, verdict in zip(some, verifier.judge(some, logits), strict=True)
        }
        return [verdicts[place.row] for place in places]


def _rejects(place: Place) -> bool:
    return place.sequence.request.drafting.verifier == REJECTION
