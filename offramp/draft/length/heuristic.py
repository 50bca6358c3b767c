"""Two more after success, one less after failure.

What: a sequence whose draft stood whole may draft two tokens more next time, otherwise one less, never below one.
When it helps: drafters without scores, and no measured costs; comparisons with engines that have this rule.
Cost: a number a sequence. It never stops drafting, so drafts that don't pay run all the same.
Exactness: lengths never change tokens.
Source: the `heuristic` schedule of assisted generation (transformers, OpenVINO GenAI).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offramp.core import DraftAsk, SequenceKey, StepLoad, TokenTree, Verdict
from offramp.errors import InvalidRequestError
from offramp.params import MAX_DRAFT, check_int


class HeuristicLength:
    """Every sequence begins with `start` nodes and never gets more than `cap`."""

    def __init__(self, start: int = 5, cap: int = 16) -> None:
        check_int("start", start, 1, MAX_DRAFT)
        check_int("cap", cap, 1, MAX_DRAFT)
        if start > cap:
            raise InvalidRequestError(f"start={start} is above cap={cap}", hint="lower start", param="start")
        self._start = start
        self._cap = cap
        self._num_nodes: dict[SequenceKey, int] = {}

    def wants(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        return [replace(ask, max_nodes=min(ask.max_nodes, self._allowed(ask))) for ask in asks]

    def choose(self, asks: Sequence[DraftAsk], trees: Sequence[TokenTree], load: StepLoad) -> Sequence[TokenTree]:
        return [self._part(ask, tree) for ask, tree in zip(asks, trees, strict=True)]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        part = self._part(ask, tree)
        if not len(part):
            return
        stood, tested = part.trace(verdict.token_ids)
        last = stood[-1] if stood else -1
        whole = bool(stood) and all(part.parents[node] != last for node in tested)
        allowed = self._allowed(ask)
        self._num_nodes[ask.key] = min(self._cap, allowed + 2) if whole else max(1, allowed - 1)

    def forget(self, key: SequenceKey) -> None:
        self._num_nodes.pop(key, None)

    def _allowed(self, ask: DraftAsk) -> int:
        return self._num_nodes.get(ask.key, self._start)

    def _part(self, ask: DraftAsk, tree: TokenTree) -> TokenTree:
        return tree.clamp(max_nodes=self._allowed(ask), max_depth=len(tree))
