"""The empty drafter.

What: proposes nothing.
When it helps: always available; the baseline and the off switch.
Cost: none; with `max_nodes` 0 the engine never calls it.
Exactness: plain decoding.
Source: none.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from offramp.core import NO_DRAFT, DraftAsk, Sequence, TokenTree, Verdict


class NoDrafter:
    """Stateless."""

    @property
    def max_nodes(self) -> int:
        return 0

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        return [NO_DRAFT] * len(asks)

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""

    def forget(self, sequence: Sequence) -> None:
        """Nothing kept."""
