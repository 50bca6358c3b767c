"""Goodput: as much of each proposal as raises the tokens per second that the step is expected to yield.

What: every node has a chance to stand, the product of its path's scores. Over all sequences of a step the likeliest
nodes are added one by one; the number that gives the most expected tokens per predicted second is kept, 0 included.
A drafter's scores are corrected by how its scores for this sequence came true, and for others that are greedy or
sampled alike; a drafter without scores gets rates by
position, of this sequence and of all, from decayed counts.
When it helps: always; it is what makes drafting never slower by more than its own cost. With many sequences a row
costs more, so it drafts less as the load grows.
Cost: some microseconds a step; and after `EXPLORE` steps without a draft one step with the likeliest nodes although
they are not predicted to pay, since what steps of several rows take is learned from steps alone. A sequence whose
drafts have not been worth running for a while is asked less often, at least every `MAX_PAUSE` steps, or every
`LONGEST_PAUSE` where many share a step.
Exactness: lengths never change tokens.
Source: SmartSpec / TurboSpec (arXiv 2406.14066), with per-node instead of per-request chances.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from offramp.core import NO_DRAFT, CostModel, DraftAsk, SequenceKey, StepLoad, TokenTree, Verdict
from offramp.draft.predictions import Predictions
from offramp.draft.trust import Trust

log = logging.getLogger("offramp.draft")

DECAY = 0.97
"""Of older counts, at each new one."""
WEIGHT = 6.0
"""Tests that the belief from all sequences counts as, against a sequence's own."""
FIRST_RATE = 0.4
"""Of nodes without scores, before anything is known."""
MIN_CHANCE = 0.05
"""Nodes that stand less often are never worth a row."""
PATIENCE, LEAST_PATIENCE = 24, 4
"""Asks in a row without a node worth running before a sequence that runs alone, or among many, is asked less often."""
EXPLORE, EXPLORE_NODES, EXPLORE_CHANCE = 64, 2, 0.3
"""Steps without a draft before one is tried, its most nodes, and the least chance of its first."""
OFF_AFTER = 256
"""Steps in a row without a draft worth running, after which a line tells, once."""
MAX_PAUSE, LONGEST_PAUSE = 4, 16
"""Steps between asks of such a sequence, alone and among many."""


class DecayedRate:
    """Successes among tests, the latest counting most."""

    __slots__ = ("stood", "tested")

    def __init__(self) -> None:
        self.stood = 0.0
        self.tested = 0.0

    def learn(self, stood: float, expected: float = 1.0) -> None:
        self.stood = DECAY * self.stood + stood
        self.tested = DECAY * self.tested + expected

    def given(self, belief: float) -> float:
        """The rate, with `belief` as the outcome of `WEIGHT` further tests."""
        return (self.stood + WEIGHT * belief) / (self.tested + WEIGHT)


@dataclass(slots=True)
class _History:
    """What is known of one sequence."""

    trust: Trust  # in scores
    by_depth: dict[int, DecayedRate] = field(default_factory=dict)  # of nodes without scores
    idle: int = 0  # asks in a row that brought no node worth running
    pause: int = 0  # steps until the next ask


class GoodputLength:
    """Expected tokens over predicted seconds, maximal over the number of nodes."""

    def __init__(self, costs: CostModel, num_layers: int) -> None:
        self._predictions = Predictions(costs, num_layers)
        self._histories: dict[SequenceKey, _History] = {}
        self._by_depth: dict[int, DecayedRate] = {}
        self._trust = {greedy: Trust() for greedy in (False, True)}  # in scores of sampled and greedy sequences
        self._undrafted = 0  # steps since one ran with drafts
        self._off = 0  # steps since drafts were last predicted to pay
        self._told = False  # that drafts went off

    def wants(self, asks: Sequence[DraftAsk]) -> Sequence[DraftAsk]:
        wanted: list[DraftAsk] = []
        for ask in asks:
            history = self._histories.get(ask.key)
            if history is None:
                history = self._histories[ask.key] = self._new_history(ask)
            if history.pause:
                history.pause -= 1
            else:
                wanted.append(ask)
        return wanted

    def choose(self, asks: Sequence[DraftAsk], trees: Sequence[TokenTree], load: StepLoad) -> Sequence[TokenTree]:
        nodes: list[tuple[float, int, int]] = []
        for index, (ask, tree) in enumerate(zip(asks, trees, strict=True)):
            if len(tree):
                chances = self._chances(self._histories[ask.key], tree)
                nodes += [(-chance, index, node) for node, chance in enumerate(chances) if chance >= MIN_CHANCE]
        count = 0
        if nodes:
            nodes.sort()  # a parent's chance is no smaller, and its number is: it comes before its children
            count = self._best_count([-chance for chance, _, _ in nodes], load)
        kept: dict[int, list[int]] = {}
        for _, index, node in nodes[:count]:
            kept.setdefault(index, []).append(node)
        self._pace(asks, kept, load.num_head_rows)
        return [_part(tree, kept.get(index)) for index, tree in enumerate(trees)]

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        if not len(tree):
            return
        history = self._histories.get(ask.key) or self._histories.setdefault(ask.key, self._new_history(ask))
        stood, tested = tree.trace(verdict.token_ids)
        standing = set(stood)
        depths = tree.depths()
        for node in tested:
            if tree.scores:
                for trust in (history.trust, self._trust[ask.greedy]):
                    trust.learn(node in standing, tree.scores[node])
            else:
                for rates in (history.by_depth, self._by_depth):
                    rates.setdefault(depths[node], DecayedRate()).learn(node in standing)

    def forget(self, key: SequenceKey) -> None:
        self._histories.pop(key, None)

    def _new_history(self, ask: DraftAsk) -> _History:
        return _History(Trust(self._trust[ask.greedy].bias))

    def _chances(self, history: _History, tree: TokenTree) -> list[float]:
        """For each node that it stands: the product along its path."""
        chances: list[float] = []
        depths = () if tree.scores else tree.depths()
        for node, parent in enumerate(tree.parents):
            rate = history.trust.corrected(tree.scores[node]) if tree.scores else self._rate(history, depths[node])
            chances.append(rate * chances[parent] if parent >= 0 else rate)
        return chances

    def _rate(self, history: _History, depth: int) -> float:
        everywhere = self._by_depth.get(depth)
        belief = FIRST_RATE if everywhere is None else everywhere.given(FIRST_RATE)
        own = history.by_depth.get(depth)
        return belief if own is None else own.given(belief)

    def _best_count(self, chances: list[float], load: StepLoad) -> int:
        """How many of these falling chances give the most expected tokens per predicted second."""
        self._predictions.begin_step()
        expected = float(load.num_head_rows)
        best, best_count = expected / self._predictions.step(load, 0), 0
        for count, chance in enumerate(chances, start=1):
            expected += chance
            goodput = expected / self._predictions.step(load, count)
            if goodput > best:
                best, best_count = goodput, count
        self._undrafted = 0 if best_count else self._undrafted + 1
        self._off = 0 if best_count else self._off + 1
        if self._off == OFF_AFTER and not self._told:
            self._told = True
            log.info("drafts are off until they pay: for %d steps none was predicted to (%s)", OFF_AFTER, load)
        if self._undrafted > EXPLORE and chances[0] >= EXPLORE_CHANCE:
            self._undrafted = 0
            return min(EXPLORE_NODES, len(chances))
        return best_count

    def _pace(self, asks: Sequence[DraftAsk], kept: dict[int, list[int]], num_places: int) -> None:
        """Asking costs every sequence as much, and brings less the more of them share a step."""
        patience = max(LEAST_PATIENCE, PATIENCE // num_places)
        longest = min(MAX_PAUSE * num_places, LONGEST_PAUSE)
        for index, ask in enumerate(asks):
            history = self._histories[ask.key]
            history.idle = 0 if index in kept else history.idle + 1
            if history.idle >= patience:
                history.pause = min(longest, history.idle // patience) - 1


def _part(tree: TokenTree, nodes: list[int] | None) -> TokenTree:
    if not nodes:
        return NO_DRAFT
    return tree if len(nodes) == len(tree) else tree.keep(sorted(nodes))
