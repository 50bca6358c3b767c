"""Stop where the drafter is unsure.

What: every path of a proposal ends with its first node whose score is below a threshold; that node still runs.
When it helps: drafters with good scores whose nodes cost little; what a measured cost would forbid runs all the same.
Cost: none of its own.
Exactness: lengths never change tokens.
Source: `assistant_confidence_threshold` (OpenVINO GenAI, transformers), where the score is the draft model's own
probability.
"""

from __future__ import annotations

from collections.abc import Sequence

from offramp.core import DraftAsk, SequenceKey, StepLoad, TokenTree, Verdict
from offramp.params import check_number


class ConfidenceLength:
    """Stateless. A proposal without scores says nothing of its sureness and stays whole."""

    def __init__(self, threshold: float = 0.4) -> None:
        check_number("threshold", threshold, 0.0, 1.0)
        self._threshold = threshold

    def wants(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        return asks

    def choose(self, asks: Sequence[DraftAsk], trees: Sequence[TokenTree], load: StepLoad) -> Sequence[TokenTree]:
        return [self._part(tree) for tree in trees]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""

    def forget(self, key: SequenceKey) -> None:
        """Nothing kept."""

    def _part(self, tree: TokenTree) -> TokenTree:
        if all(score >= self._threshold for score in tree.scores):
            return tree
        going_on: list[bool] = []  # by node: it and all above it are sure
        kept: list[int] = []
        for node, (parent, score) in enumerate(zip(tree.parents, tree.scores, strict=True)):
            reached = parent < 0 or going_on[parent]
            going_on.append(reached and score >= self._threshold)
            if reached:
                kept.append(node)
        return tree.keep(kept)
