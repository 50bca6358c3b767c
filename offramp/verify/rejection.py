"""The rejection verifier.

What: a draft token x, drawn from q, stands with probability min(1, p(x) / q(x)). Where it does not, p becomes what it
has more than q, and the next of several children is tried against that; where none stands, the token comes from the
rest. Behind a draft that was accepted whole, and without one, the draw is plain sampling's.
When it helps: sampled requests whose drafter draws freely: there it accepts more often than the exact verifier.
Cost: the distribution in full at each place that has drafts, in numpy; with drafts that were drawn, theirs too.
Exactness: in distribution, over whole sequences, not in tokens: with another draft the same seed gives another text.
Greedy requests get exactly plain decoding's tokens. A node without a law counts as chosen for certain, and may be left
out for any reason that knows no noise of this verifier; whether one with a law is put to the test must not depend on
its own token, so such drafts run whole, and their drafters look at laws alone before they draw.
Source: speculative sampling (arXiv 2211.17192, 2302.01318), several children as in SpecInfer (2305.09781).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offramp.core import Place, TokenTree, Verdict
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
        children = _children(tree)
        token_ids: list[int] = []
        accepted: list[int] = []
        rows: list[int] = []
        fork = None if matcher is None else matcher.fork()
        node = -1
        while True:
            try:
                job = job_behind(place.sequence, token_ids, None if fork is None else fork.allowed())
            except OfframpError as error:
                return Verdict(token_ids=tuple(token_ids), accepted=tuple(accepted), rows=tuple(rows), error=error)
            row = logits[place.row + 1 + node]
            [drawn] = self._sample_rows(row[None], [job])
            if isinstance(drawn, OfframpError):
                return Verdict(token_ids=tuple(token_ids), accepted=tuple(accepted), rows=tuple(rows), error=drawn)
            rows.append(1 + node)
            stands, token = _settle(row, job, tree, children.get(node, ()), drawn)
            token_ids.append(token)
            if stands is None:
                return Verdict(token_ids=tuple(token_ids), accepted=tuple(accepted), rows=tuple(rows))
            accepted.append(stands)
            node = stands
            if fork is not None:
                fork.advance(token)


def _settle(
    row: NDArray[np.float32], job: RowJob, tree: TokenTree, children: Sequence[int], drawn: int
) -> tuple[int | None, int]:
    """The child that stands and its token, else the recovered token, which is none of theirs."""
    if not children:
        return None, drawn
    if job.params.greedy:
        return next((child for child in children if tree.token_ids[child] == drawn), None), drawn
    key = NoiseKey(seed=job.seed, choice=job.choice, position=job.position)
    p = distribution(row, job)
    for turn, child in enumerate(children):
        draft = tree.token_ids[child]
        q = tree.laws[child] if tree.laws else _certain(draft, len(p))
        assert q[draft] > 0, "a draft that its law rules out"
        [uniform] = uniforms(key, np.array([turn], dtype=np.int64), ACCEPTANCE)
        if uniform * q[draft] < p[draft]:
            return child, draft
        rest = np.maximum(p - q, 0.0)
        if rest.max() <= SMALLEST:
            return child, draft  # the two are equal up to rounding
        p = rest / rest.sum()
    return None, draw_from(p, key, RECOVERY)


def _certain(token: int, vocab_size: int) -> Probabilities:
    law = np.zeros(vocab_size)
    law[token] = 1.0
    return law


def _children(tree: TokenTree) -> dict[int, list[int]]:
    """Of each node that has some (-1: the root), in the order in which they were drawn."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        children.setdefault(parent, []).append(node)
    return children
