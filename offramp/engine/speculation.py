"""Drafts for the places of a step: who is asked, how much of each proposal runs, what is learned of it.

What a grammar forces comes first. It comes in any case, so all of it runs, and the drafters, which could say no more,
are not asked. Elsewhere they are, and what the grammar rules out of their drafts does not run.

Where a little model writes, nobody else drafts: it is asked in every step, as much as has room of what it wrote runs,
and no controller has a say, since all of it is judged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Items

from offramp.cache.pages import PagePool
from offramp.core import (
    NO_DRAFT,
    DraftAsk,
    Drafter,
    LengthController,
    Little,
    Sequence,
    SequenceKey,
    StepLoad,
    TokenTree,
    Verdict,
)
from offramp.draft.grammar import GrammarDrafter, within_grammar
from offramp.engine.account import Account
from offramp.engine.draft_rows import DraftRows
from offramp.engine.pack import Started
from offramp.engine.planner import Plan, PlanItem
from offramp.engine.taps import Taps
from offramp.engine.task import Task


class Speculation:
    """Between planner and runner. Takes rows and pages that nothing else wants, and never preempts."""

    def __init__(
        self,
        drafter: Drafter,
        lengths: LengthController,
        pool: PagePool,
        vocab_size: int,
        draft_rows: DraftRows | None = None,
        taps: Taps | None = None,
        little: Little | None = None,
    ) -> None:
        self._drafter = drafter
        self._lengths = lengths
        self._grammar = GrammarDrafter()
        self._pool = pool
        self._vocab_size = vocab_size
        self._draft_rows = draft_rows
        self._taps = taps
        self._little = little
        self._proposed: dict[int, tuple[DraftAsk, TokenTree]] = {}  # of the step at work, by item, until observed
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """What the latest `draft` took."""
        return self._seconds

    @property
    def run_seconds(self) -> float:
        """Of those, in the executor."""
        return self._draft_rows.seconds if self._draft_rows is not None else 0.0

    def started(self) -> Mapping[SequenceKey, Items[Started]]:
        """Rows of the step at work that ran while it drafted."""
        return self._draft_rows.started() if self._draft_rows is not None else {}

    def draft(self, plan: Plan, account: Account) -> list[TokenTree]:
        """A draft (often none) for each item, with pages held for it; `account` is of the steps before."""
        items = plan.items
        drafts = [NO_DRAFT] * len(items)
        self._proposed, self._seconds = {}, 0.0
        if self._draft_rows is not None:
            self._draft_rows.open(items)
        if self._taps is not None:
            self._taps.open(items)
        yielding = [index for index, item in enumerate(items) if item.yields]
        bound = [index for index in yielding if items[index].task.sequence.matcher is not None]
        written = [index for index, item in enumerate(items) if item.task.sequence.request.big_little is not None]
        if not (bound or written or (yielding and self._drafter.max_nodes)):
            return drafts
        begin = time.perf_counter()
        share = plan.budget // max(1, len(yielding))
        if written:
            self._let_write(items, written, share, drafts)
        for index in bound:
            drafts[index] = self._forced(items[index].task, share)
        load = _load(items, len(yielding), sum(map(len, drafts)), account)
        asks = {
            index: ask
            for index in yielding
            if not len(drafts[index])
            and (ask := _ask(items[index].task.sequence, min(self._drafter.max_nodes, share), load)) is not None
        }
        self._ask_drafter(items, asks, drafts, load)
        self._seconds = time.perf_counter() - begin
        return drafts

    def _ask_drafter(
        self, items: Items[PlanItem], asks: dict[int, DraftAsk], drafts: list[TokenTree], load: StepLoad
    ) -> None:
        """Put what the controller takes of the drafter's proposals into `drafts`. `asks` are by item."""
        wanted = list(self._lengths.wants(list(asks.values()))) if asks else []
        if not wanted:
            return
        trees = [self._clean(ask, tree) for ask, tree in zip(wanted, self._drafter.propose(wanted), strict=True)]
        chosen = self._lengths.choose(wanted, trees, load)
        index_of = {ask.key: index for index, ask in asks.items()}
        for ask, tree, part in zip(wanted, trees, chosen, strict=True):
            index = index_of[ask.key]
            self._proposed[index] = ask, tree
            if tree.laws:
                part = tree  # free draws run whole: what is cut by scores would bend the distribution
            if len(part):
                drafts[index] = self._hold(items[index].task, part)
            if self._draft_rows is not None:
                self._draft_rows.keep(ask.key, len(drafts[index]))

    def _let_write(self, items: Items[PlanItem], written: Items[int], share: int, drafts: list[TokenTree]) -> None:
        """Put what has room of a little model's text into `drafts`; it reads along where no token comes yet."""
        assert self._little is not None, "a request with a policy that nobody has"
        reading = [items[index] for index in written if not items[index].yields]
        if reading:
            self._little.read([(_key(item), item.task.sequence.tokens.view[: item.stop]) for item in reading])
        asks = {index: _ask_little(items[index].task.sequence, share) for index in written if items[index].yields}
        if not asks:
            return
        for (index, ask), tree in zip(asks.items(), self._little.propose(list(asks.values())), strict=True):
            self._proposed[index] = ask, tree
            part = tree.clamp(max_nodes=ask.max_nodes, max_depth=ask.max_depth)
            if len(part):
                drafts[index] = self._hold(items[index].task, part)

    def _forced(self, task: Task, share: int) -> TokenTree:
        """What the grammar forces of a sequence."""
        ask = _ask(task.sequence, min(self._grammar.max_nodes, share))
        if ask is None:
            return NO_DRAFT
        [tree] = self._grammar.propose([ask])
        return self._hold(task, tree) if len(tree) else NO_DRAFT

    def observe(self, index: int, verdict: Verdict) -> None:
        """What became of the item's draft."""
        proposed = self._proposed.pop(index, None)
        if proposed is not None:
            ask, proposal = proposed
            if verdict.written is not None and self._little is not None:
                self._little.observe(ask, proposal, verdict)
                return
            self._drafter.observe(ask, proposal, verdict)
            self._lengths.observe(ask, proposal, verdict)

    def keep(self, key: SequenceKey, accepted: Items[int]) -> None:
        """These nodes of a sequence's draft are committed."""
        if self._taps is not None:
            self._taps.keep(key, accepted)

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended."""
        if self._taps is not None:
            self._taps.forget(sequence.key)
        if self._little is not None and sequence.request.big_little is not None:
            self._little.forget(sequence)
        if self._drafter.max_nodes and not sequence.request.drafts_off:
            self._drafter.forget(sequence)
            self._lengths.forget(sequence.key)

    def _clean(self, ask: DraftAsk, tree: TokenTree) -> TokenTree:
        """Within its bounds; ids outside the vocabulary, and what its grammar rules out, end it."""
        tree = tree.without_ids_from(self._vocab_size)
        if ask.matcher is not None:
            tree = within_grammar(tree, ask.matcher)
        return tree.clamp(max_nodes=ask.max_nodes, max_depth=ask.max_depth)

    def _hold(self, task: Task, tree: TokenTree) -> TokenTree:
        """Cut a draft to the pages at hand, and hold those."""
        room = task.cache.room(len(task.sequence), self._pool.num_available)
        tree = tree.clamp(max_nodes=room, max_depth=len(tree))
        task.cache.grow(len(task.sequence) + len(tree))
        return tree


def _ask(sequence: Sequence, share: int, load: StepLoad | None = None) -> DraftAsk | None:
    """A block of depth d yields up to d + 1 tokens, so the draft stops one short of the sequence's limit."""
    drafting = sequence.request.drafting
    max_nodes = share if drafting.max_draft is None else min(share, drafting.max_draft)
    max_depth = _most_deep(sequence)
    if min(max_nodes, max_depth) <= 0 or sequence.request.drafts_off:
        return None
    return _ask_for(sequence, max_nodes, max_depth, load)


def _ask_little(sequence: Sequence, share: int) -> DraftAsk:
    """Also where nothing has room: what it would write there decides the token all the same."""
    return _ask_for(sequence, share, _most_deep(sequence))


def _most_deep(sequence: Sequence) -> int:
    return sequence.limit - len(sequence) - 1


def _ask_for(sequence: Sequence, max_nodes: int, max_depth: int, load: StepLoad | None = None) -> DraftAsk:
    return DraftAsk(
        key=sequence.key,
        prompt_len=sequence.prompt_len,
        token_ids=sequence.tokens.view,
        max_nodes=max_nodes,
        max_depth=max_depth,
        drafting=sequence.request.drafting,
        greedy=sequence.request.params.greedy,
        salt=sequence.request.cache_salt,
        sequence=sequence,
        matcher=sequence.matcher,
        load=load,
    )


def _key(item: PlanItem) -> SequenceKey:
    return item.task.sequence.key


def _load(items: Items[PlanItem], num_places: int, num_forced: int, account: Account) -> StepLoad:
    """Forced tokens, and those of a little model, are rows that each yield a token, as places do."""
    num_rows = sum(item.stop - item.start for item in items)
    context = sum((item.start + item.stop) * (item.stop - item.start) for item in items) // (2 * num_rows)
    drafting = any(not item.task.sequence.request.drafts_off for item in items)
    surprise = account.surprise if drafting else None  # nobody else is asked what a step should have taken
    return StepLoad(num_rows + num_forced, num_places + num_forced, context, account.overhead, surprise)
