"""The drafters that copy, as `auto` has them.

What: suffix automata over the sequence's own text and earlier outputs; together with the request's reference texts
where it has any. A plain n-gram lookup is left out: the automata know all it knows.
When it helps: repetitive work on any model; with goodput lengths it is little slower than none elsewhere.
Cost: that of the suffix drafter; of the reference drafter only where there are references.
Exactness: proposes only; the verifier decides.
Source: our own combination of those of its members.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from offramp.core import DraftAsk, Drafter, Sequence, TokenTree, Verdict
from offramp.draft.chain import ChainDrafter


class CopyingDrafter:
    """`text` alone, or merged with `reference` for requests that hand texts over."""

    def __init__(self, text: Drafter, reference: Drafter) -> None:
        self._text = text
        self._both = ChainDrafter([text, reference], merge=True)

    @property
    def max_nodes(self) -> int:
        return self._both.max_nodes

    def propose(self, asks: Items[DraftAsk]) -> Items[TokenTree]:
        if not any(ask.drafting.references for ask in asks):
            return self._text.propose(asks)
        return [tree for ask in asks for tree in self._of(bool(ask.drafting.references)).propose([ask])]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self._of(bool(ask.drafting.references)).observe(ask, tree, verdict)

    def forget(self, sequence: Sequence) -> None:
        self._of(bool(sequence.request.drafting.references)).forget(sequence)

    def _of(self, has_references: bool) -> Drafter:
        return self._both if has_references else self._text
