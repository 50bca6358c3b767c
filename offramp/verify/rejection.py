"""The rejection verifier.

What: a draft token x, drawn from q, stands with probability min(1, p(x) / q(x)); where it does not, the token comes
from what p has more than q. Behind a draft that was accepted whole, and without one, the draw is plain sampling's.
When it helps: sampled requests whose drafter draws freely: there it accepts more often than the exact verifier.
Cost: both distributions in full at each place, in numpy.
Exactness: in distribution, over whole sequences, not in tokens: with another draft the same seed gives another text.
Greedy requests get exactly plain decoding's tokens. Whether a node is put to the test must not depend on its own token:
controllers that look at scores of drawn tokens would bend the distribution. Chains only.
Source: speculative sampling (arXiv 2211.17192, 2302.01318).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Place, Verdict
from offramp.errors import OfframpError
from offramp.sample.distribution import SMALLEST, Probabilities, distribution, draw_from
from offramp.sample.race import ACCEPTANCE, RECOVERY, NoiseKey, uniforms
from offramp.sample.sampler import RowJob, job_behind
from offramp.verify.exact import SampleRows


class RejectionVerifier:
    """`sample_rows` makes the plain draws, and finds rows that can't be drawn from."""

    def __init__(self, sample_rows: SampleRows) -> None:
        self._sample_rows = sample_rows

    def judge(self, places: Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        return [self._judge(place, logits) for place in places]

    def _judge(self, place: Place, logits: NDArray[np.float32]) -> Verdict:
        """Under a grammar what may come is asked along the draft, of a matcher of our own."""
        tree, matcher = place.tree, place.sequence.matcher
        assert tree.is_chain, "the rejection verifier judges chains"
        token_ids: list[int] = []
        fork = None if matcher is None else matcher.fork()
        for node in range(len(tree) + 1):
            try:
                job = job_behind(place.sequence, token_ids, None if fork is None else fork.allowed())
            except OfframpError as error:
                return _verdict(token_ids, node, error)
            row = logits[place.row + node]
            [drawn] = self._sample_rows(row[None], [job])
            if isinstance(drawn, OfframpError):
                return _verdict(token_ids, node, drawn)
            if node == len(tree):
                return _verdict([*token_ids, drawn], node)
            draft = tree.token_ids[node]
            token = _settle(distribution(row, job), draft, tree.laws[node] if tree.laws else None, job)
            token_ids.append(token)
            if token != draft:
                return _verdict(token_ids, node)
            if fork is not None:
                fork.advance(token)
        raise AssertionError("a chain ends with its bonus token")


def _settle(p: Probabilities, draft: int, q: Probabilities | None, job: RowJob) -> int:
    """The draft if it stands, else the recovered token, which is another one."""
    key = NoiseKey(seed=job.seed, choice=job.choice, position=job.position)
    if q is None:
        q = np.zeros(len(p))
        q[draft] = 1.0
    assert q[draft] > 0, "a draft that its law rules out"
    [uniform] = uniforms(key, np.zeros(1, dtype=np.int64), ACCEPTANCE)
    if uniform * q[draft] < p[draft]:
        return draft
    rest = np.maximum(p - q, 0.0)
    if rest.max() <= SMALLEST:
        return draft  # the two are equal up to rounding
    return draw_from(rest, key, RECOVERY)


def _verdict(token_ids: Sequence[int], num_accepted: int, error: OfframpError | None = None) -> Verdict:
    return Verdict(
        token_ids=tuple(token_ids),
        accepted=tuple(range(num_accepted)),
        rows=tuple(range(len(token_ids))),
        error=error,
    )
