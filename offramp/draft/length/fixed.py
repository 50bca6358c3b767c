"""A fixed length.

What: every proposal runs, up to a given number of nodes.
When it helps: experiments, tests, and workloads whose best length is known.
Cost: none of its own; drafts that don't pay run all the same.
Exactness: lengths never change tokens.
Source: the common default of other engines (`num_speculative_tokens`).
"""

from __future__ import annotations

from collections.abc import Sequence

from offramp.core import DraftAsk, SequenceKey, StepLoad, TokenTree, Verdict


class FixedLength:
    """Takes the first `num_nodes` nodes of each proposal, or all with None."""

    def __init__(self, num_nodes: int | None = None) -> None:
        self._num_nodes = num_nodes

    def wants(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        return asks if self._num_nodes != 0 else ()

    def choose(self, asks: Sequence[DraftAsk], trees: Sequence[TokenTree], load: StepLoad) -> Sequence[TokenTree]:
        if self._num_nodes is None:
            return trees
        return [tree.clamp(max_nodes=self._num_nodes, max_depth=len(tree)) for tree in trees]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""

    def forget(self, key: SequenceKey) -> None:
        """Nothing kept."""
