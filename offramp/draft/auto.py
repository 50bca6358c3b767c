"""Everything that an engine has to draft with, as `draft="auto"` chooses from it.

What: what the text copies is looked up for every sequence, for that costs nothing. From how surely it is thought to
stand follow the tokens per second that it brings; each drafter with weights says the same of itself, from costs and
learned acceptance. The best of them drafts for that sequence in that step, or none does. What a side layer or draft
model says joins the copied text as one tree, of which the length controller keeps what pays; self-drafting goes alone.
When it helps: wherever one of its members does.
Cost: that of copying; of a drafter with weights where it is predicted to pay, and for trials, which are few.
Exactness: proposes only; the verifier decides.
Source: our own; trees are joined as in SpecInfer (arXiv 2305.09781).
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from offramp.core import NO_DRAFT, DraftAsk, Drafter, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.chain import merged, reaches
from offramp.draft.grammar import within_grammar
from offramp.draft.paid import PaidDrafter
from offramp.draft.predictions import Predictions, load_of
from offramp.draft.trust import Trust


@dataclass(slots=True, eq=False)
class Member:
    """A drafter of several, and how far its scores are to be trusted."""

    drafter: Drafter
    _of_all: dict[bool, Trust]  # in scores of sampled and of greedy sequences
    _of_one: dict[SequenceKey, Trust]

    @staticmethod
    def of(drafter: Drafter) -> Member:
        return Member(drafter, {greedy: Trust() for greedy in (False, True)}, {})

    def trusted(self, ask: DraftAsk, tree: TokenTree) -> TokenTree:
        """The tree with its scores as they are to be read."""
        trust = self._trust(ask)
        return replace(tree, scores=tuple(map(trust.corrected, tree.scores)))

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Both learn what became of a proposal."""
        self.drafter.observe(ask, tree, verdict)
        stood, tested = tree.trace(verdict.token_ids)
        standing = set(stood)
        for node in tested:
            for trust in (self._trust(ask), self._of_all[ask.greedy]):
                trust.learn(node in standing, tree.scores[node])

    def forget(self, sequence: Sequence) -> None:
        self._of_one.pop(sequence.key, None)
        self.drafter.forget(sequence)

    def _trust(self, ask: DraftAsk) -> Trust:
        trust = self._of_one.get(ask.key)
        if trust is None:
            trust = self._of_one[ask.key] = Trust(self._of_all[ask.greedy].bias)
        return trust


@dataclass(slots=True, eq=False)
class _Part:
    """What one member said of one ask."""

    member: Member
    tree: TokenTree
    least: float = 0.0  # of a copied one: the chance of the least likely node that pays
    paid: PaidDrafter | None = None  # who drafted it, where that takes time


class AutoDrafter:
    """`alone`, where there is one, drafts by self-drafting: its chain joins no tree.

    Without predictions nothing is weighed, as under lengths that look at no costs: the first of `paid` drafts always,
    beside what is copied, and `alone` never.
    """

    def __init__(
        self,
        copying: Drafter,
        paid: Items[PaidDrafter],
        alone: PaidDrafter | None = None,
        predictions: Predictions | None = None,
    ) -> None:
        self._copying = Member.of(copying)
        self._paid = list(paid)
        self._alone = alone if predictions is not None else None
        self._members = {id(each): Member.of(each) for each in (*paid, *([alone] if alone is not None else []))}
        self._predictions = predictions
        self._parts: dict[SequenceKey, list[_Part]] = {}  # of the latest proposals, until observed

    @property
    def max_nodes(self) -> int:
        return self._copying.drafter.max_nodes

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        if self._predictions is not None:
            self._predictions.begin_step()
        parts = self._copied(asks)
        drafters = [each for each in (*self._paid, self._alone) if each is not None and each.max_nodes]
        if drafters:
            self._add_paid(asks, parts, drafters)
        trees: list[TokenTree] = []
        for ask, said in zip(asks, parts, strict=True):
            self._parts[ask.key] = said
            trees.append(self._together(ask, said))
        return trees

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        parts = self._parts.pop(ask.key, [])
        paid = [part.paid for part in parts if part.paid is not None and len(part.tree)]
        if paid:
            num_copied = self._num_copied(ask, parts[0], verdict)
            for drafter in paid:
                drafter.share(ask.key, num_copied)
        for part in parts:
            part.member.observe(ask, part.tree, verdict)

    def forget(self, sequence: Sequence) -> None:
        self._parts.pop(sequence.key, None)
        for member in (self._copying, *self._members.values()):
            member.forget(sequence)

    def _copied(self, asks: Items[DraftAsk]) -> list[list[_Part]]:
        """The first part of each."""
        parts: list[list[_Part]] = []
        for ask, tree in zip(asks, self._copying.drafter.propose(asks), strict=True):
            tree = tree.clamp(max_nodes=ask.max_nodes, max_depth=ask.max_depth)
            if ask.matcher is not None:
                tree = within_grammar(tree, ask.matcher)
            parts.append([_Part(self._copying, tree)])
        return parts

    def _add_paid(self, asks: Items[DraftAsk], parts: Items[list[_Part]], drafters: Items[PaidDrafter]) -> None:
        """Ask each drafter where it is the best, and where it is in doubt: it decides about trials itself.

        The one that goes alone comes last, so that it leaves others their trials. Each hears of every step, be it for
        nobody: what it predicts would be of long ago otherwise.
        """
        worth = [[drafter.goodput(ask, len(asks)) for drafter in drafters] for ask in asks]
        best = [
            self._best(ask, said[0], values, len(asks)) for ask, said, values in zip(asks, parts, worth, strict=True)
        ]
        drafted: set[int] = set()
        for place, drafter in enumerate(drafters):
            wanted = [index for index in range(len(asks)) if best[index] == place or not worth[index][place]]
            if drafter is self._alone:
                wanted = [index for index in wanted if index not in drafted]
            proposals = drafter.propose([asks[index] for index in wanted])
            for index, tree in zip(wanted, proposals, strict=True):
                parts[index].append(_Part(self._members[id(drafter)], tree, paid=drafter))
                if len(tree):
                    drafted.add(index)

    def _best(self, ask: DraftAsk, copied: _Part, worth: Items[float], num_alike: int) -> int | None:
        """Which of the drafters with weights promises the most; None where copying, or nothing, does."""
        most = max(worth)
        goodput, copied.least = self._goodput(ask, copied.tree, num_alike)
        if most <= 0.0 or most < goodput:
            return None
        return worth.index(most)

    def _num_copied(self, ask: DraftAsk, copied: _Part, verdict: Verdict) -> int:
        """Tokens that copying would have brought alone."""
        chances = reaches(self._copying.trusted(ask, copied.tree))
        stood, _ = copied.tree.trace(verdict.token_ids)
        return sum(chances[node] >= copied.least for node in stood)

    def _goodput(self, ask: DraftAsk, copied: TokenTree, num_alike: int) -> tuple[float, float]:
        """Of a step in which so many drafts like this one run, each as long as it pays; and its least chance then."""
        if self._predictions is None:
            return 0.0, 0.0
        load = load_of([ask], num_alike)
        expected = float(load.num_head_rows)
        best, least = expected / self._predictions.step(load, 0), 1.0
        for count, chance in enumerate(sorted(reaches(self._copying.trusted(ask, copied)), reverse=True), start=1):
            expected += num_alike * chance
            goodput = expected / self._predictions.step(load, num_alike * count)
            if goodput > best:
                best, least = goodput, chance
        return best, least

    def _together(self, ask: DraftAsk, said: Items[_Part]) -> TokenTree:
        said = [part for part in said if len(part.tree)]
        trees = [part.member.trusted(ask, part.tree) for part in said]
        alone = self._alone is not None and any(part.member.drafter is self._alone for part in said)
        drawn = next((tree for tree in trees if tree.laws), None)
        if drawn is not None:
            return drawn  # joined with others it would lose its laws
        if alone or len(trees) == 1:
            return trees[-1]
        return merged(trees, min(ask.max_nodes, self.max_nodes)) if trees else NO_DRAFT
