"""Tokens that a grammar forces.

What: where the grammar of a request has one continuation, such as the next key of an object, that is the draft.
When it helps: requests with a grammar; the longer the fixed parts of their answers are, the more.
Cost: some microseconds for each of their sequences. Its rows are never wasted: those tokens come in any case, and
many rows of one step take less time than as many steps. So no length controller is asked.
Exactness: proposes only; the verifier decides, under the same grammar.
Source: fast-forward tokens of constrained decoding, verified like any draft instead of taken on trust.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from offramp.core import NO_DRAFT, DraftAsk, Matcher, Sequence, TokenTree, Verdict

MAX_FORCED = 32
"""Most draft tokens of a sequence in one step."""


class GrammarDrafter:
    """Runs before all others, for every request that has a grammar and does not want drafts off."""

    @property
    def max_nodes(self) -> int:
        return MAX_FORCED

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        return [_forced(ask) for ask in asks]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """There is nothing to learn."""

    def forget(self, sequence: Sequence) -> None:
        """There is nothing to drop."""


def within_grammar(tree: TokenTree, matcher: Matcher) -> TokenTree:
    """The tree without tokens that can't come next, nor anything behind them."""
    if tree.is_chain:
        return tree.keep(range(matcher.follows(tree.token_ids))) if len(tree) else tree
    paths = [[tree.token_ids[node] for node in path] for path in tree.paths()]
    return tree.keep([node for node, path in enumerate(paths) if matcher.follows(path) == len(path)])


def _forced(ask: DraftAsk) -> TokenTree:
    if ask.matcher is None:
        return NO_DRAFT
    tokens = ask.matcher.forced(min(ask.max_nodes, ask.max_depth))
    return TokenTree.chain(tokens, [1.0] * len(tokens))
