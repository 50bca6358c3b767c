"""Drafters whose proposals a test writes, from perfect to always wrong, as chains and as trees."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items

from offramp.core import NO_DRAFT, DraftAsk, Sequence, SequenceKey, TokenTree, Verdict

Propose = Callable[[DraftAsk], TokenTree]


class ScriptedDrafter:
    """Proposes what a function says and records everything it is told. It ignores bounds: clamping is the engine's."""

    def __init__(self, propose: Propose, *, max_nodes: int) -> None:
        self._propose = propose
        self._max_nodes = max_nodes
        self.asks: list[DraftAsk] = []
        self.verdicts: list[tuple[TokenTree, Verdict]] = []
        self.forgotten: list[SequenceKey] = []

    @property
    def max_nodes(self) -> int:
        return self._max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        self.asks += asks
        return [self._propose(ask) for ask in asks]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        self.verdicts.append((tree, verdict))

    def forget(self, sequence: Sequence) -> None:
        self.forgotten.append(sequence.key)


def never(ask: DraftAsk) -> TokenTree:
    """Nothing, though asked."""
    return NO_DRAFT


def oracle_chain(answers: Mapping[SequenceKey, Items[int]], length: int) -> Propose:
    """The next tokens of the known output of each sequence; the last one again when the output is used up."""

    def propose(ask: DraftAsk) -> TokenTree:
        return TokenTree.chain(_coming(answers, ask, length))

    return propose


def wrong_chain(answers: Mapping[SequenceKey, Items[int]], length: int, vocab_size: int) -> Propose:
    """Every token is off by one: none is ever accepted."""

    def propose(ask: DraftAsk) -> TokenTree:
        return TokenTree.chain([(token + 1) % vocab_size for token in _coming(answers, ask, length)])

    return propose


def mixed_chain(answers: Mapping[SequenceKey, Items[int]], length: int, vocab_size: int, seed: int) -> Propose:
    """Right up to a random place, wrong from there on."""

    def propose(ask: DraftAsk) -> TokenTree:
        rng = random.Random(f"{seed} {ask.key} {len(ask.token_ids)}")
        tokens = _coming(answers, ask, length)
        good = rng.randint(0, length)
        return TokenTree.chain(tokens[:good] + [(token + 1) % vocab_size for token in tokens[good:]])

    return propose


def random_tree(answers: Mapping[SequenceKey, Items[int]], nodes: int, vocab_size: int, seed: int) -> Propose:
    """A tree of random shape in which the right tokens hide among wrong ones, in random order."""

    def propose(ask: DraftAsk) -> TokenTree:
        rng = random.Random(f"{seed} {ask.key} {len(ask.token_ids)}")
        coming = _coming(answers, ask, nodes)
        parents: list[int] = []
        tokens: list[int] = []
        depths = {-1: 0}
        right = {-1}
        for node in range(nodes):
            parent = rng.choice([rng.randint(-1, node - 1), max(right)])
            depths[node] = depths[parent] + 1
            taken = {tokens[n] for n in range(node) if parents[n] == parent}
            token = coming[depths[parent]] if parent in right and rng.random() < 0.6 else rng.randrange(vocab_size)
            if token in taken:
                token = next(t for t in range(vocab_size) if t not in taken)
            parents.append(parent)
            tokens.append(token)
            if parent in right and token == coming[depths[parent]]:
                right.add(node)
        return TokenTree(tuple(tokens), tuple(parents))

    return propose


def _coming(answers: Mapping[SequenceKey, Items[int]], ask: DraftAsk, length: int) -> list[int]:
    answer = list(answers[ask.key])
    begin = len(ask.token_ids) - ask.prompt_len
    known = answer[begin : begin + length]
    return known + [answer[-1]] * (length - len(known))
