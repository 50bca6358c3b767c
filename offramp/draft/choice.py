"""The drafters of one engine by the name that each request asks for.

What: hands every ask to the drafter its request names, made when it is first asked for; "off" never comes this far.
When it helps: requests choose their drafter, or none, one by one.
Cost: none beside the drafters' own.
Exactness: as any drafter: the output stays that of plain decoding.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

from offramp.core import DraftAsk, Drafter, Sequence, TokenTree, Verdict


class DrafterChoice:
    """Every request must name its drafter (`DraftParams.drafter`)."""

    def __init__(self, make: Callable[[str], Drafter], max_nodes: int) -> None:
        self._make = make
        self._max_nodes = max_nodes
        self._drafters: dict[str, Drafter] = {}

    @property
    def max_nodes(self) -> int:
        return self._max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        by_name: dict[str, list[int]] = {}
        for index, ask in enumerate(asks):
            assert ask.drafting.drafter is not None, "a request that names no drafter"
            by_name.setdefault(ask.drafting.drafter, []).append(index)
        trees: list[TokenTree] = [TokenTree()] * len(asks)
        for name, indices in by_name.items():
            for index, tree in zip(indices, self._of(name).propose([asks[i] for i in indices]), strict=True):
                trees[index] = tree
        return trees

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self._of(ask.drafting.drafter or "").observe(ask, tree, verdict)

    def forget(self, sequence: Sequence) -> None:
        drafter = self._drafters.get(sequence.request.drafting.drafter or "")
        if drafter is not None:
            drafter.forget(sequence)

    def _of(self, name: str) -> Drafter:
        drafter = self._drafters.get(name)
        if drafter is None:
            drafter = self._drafters[name] = self._make(name)
        return drafter
