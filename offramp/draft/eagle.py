"""A side layer over the target's hidden states drafts (EAGLE).

What: one layer with K/V of its own sees the target's hidden states of all places that ran and the token behind each,
and says the token after that; then it goes on from its own output. Where states are lacking (a cached prefix, a
prompt's beginning that is too long ago, what ran while drafts did not pay) it sees the rest alone. The second likeliest
token joins as a leaf where it is worth a row.
When it helps: any text, with few streams at once; it needs a pack trained for the model.
Cost: for each token a layer, two small matrices and a head of some thousand tokens; the target's pass is cut at the
depths that are looked at; for each kept token a further row of the target.
Exactness: proposes only; the verifier decides. An error of the side layer ends its drafting, never a request.
Source: EAGLE-3 (arXiv 2503.01840), the reduced head as in FR-Spec (2502.14856), length from acceptance and costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.core import NO_DRAFT, DraftAsk, Ids, Rows, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.drawing import DraftChain, Drawn, SampleRows, draw, is_plain_greedy
from offramp.draft.failures import FAILURES, tell_failure
from offramp.draft.own_cache import OwnCache, OwnSequence
from offramp.draft.plans import NO_PLAN, DraftPlan, DraftPlans, Rounds
from offramp.draft.scores import ScoreTable
from offramp.draft.side_model import SideModel
from offramp.draft.tapped import TappedStates
from offramp.errors import NumericError
from offramp.model.executor import Hidden

BUCKETS = 12
"""Of confidence, within which drafts are thought to stand alike."""
LATER = 2
"""Draft tokens from this one on (from 0) are thought to stand alike."""
LEAST_PLACES = 8
"""Behind a hole: with fewer places seen it drafts nothing, for it would say little and be judged by that."""
FEW_ROWS = 4
"""Rows up to so many run whole, though only the last of a sequence says something: cheaper than two calls."""

ScoreKey = tuple[bool, int, int, int]
"""(greedy, place in the draft, rank, bucket)."""


@dataclass(slots=True, eq=False)
class _Chain(DraftChain):
    """A chain, and leaves beside its tokens."""

    own: OwnSequence | None = None
    plan: DraftPlan = NO_PLAN
    keys: list[ScoreKey] = field(default_factory=list)  # of the chain's tokens
    leaves: list[tuple[int, int, float, ScoreKey]] = field(default_factory=list)  # (place, token, score, key)

    @property
    def cache(self) -> OwnSequence:
        assert self.own is not None
        return self.own

    @property
    def all_keys(self) -> list[ScoreKey]:
        """By node of the tree."""
        return self.keys + [key for _, _, _, key in self.leaves]

    def tree(self) -> TokenTree:
        """The chain's nodes first: their K/V are where they belong if they stand."""
        room = self.ask.max_nodes - len(self.token_ids)
        del self.leaves[max(0, room) :]
        parents = [*range(-1, len(self.token_ids) - 1), *(place - 1 for place, _, _, _ in self.leaves)]
        tokens = [*self.token_ids, *(token for _, token, _, _ in self.leaves)]
        scores = [*self.scores, *(score for _, _, score, _ in self.leaves)]
        return TokenTree(tuple(tokens), tuple(parents), tuple(scores), tuple(self.laws))


class EagleDrafter:
    """Chains with leaves. Scores are how often such tokens stood, by what the side layer thought of them."""

    def __init__(
        self,
        model: SideModel,
        taps: TappedStates,
        *,
        plans: DraftPlans,
        sample_rows: SampleRows,
        max_len: int,
    ) -> None:
        self._model = model
        self._taps = taps
        self._plans = plans
        self._sample_rows = sample_rows
        self._max_len = max_len
        self._cache = OwnCache(model.executor.num_pages, 1)
        self._scores: ScoreTable[ScoreKey] = ScoreTable(_prior)
        self._proposed: dict[SequenceKey, _Chain] = {}

    @property
    def max_nodes(self) -> int:
        """0 once the side layer has failed."""
        return self._max_len

    @property
    def num_used_pages(self) -> int:
        return self._cache.num_used

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        if not self._max_len:
            return [NO_DRAFT] * len(asks)
        try:
            chains = self._propose(asks)
        except FAILURES as error:
            self._fail(error)
            return [NO_DRAFT] * len(asks)
        return [chains[ask.key].tree() if ask.key in chains else NO_DRAFT for ask in asks]

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        """As `DraftPlans.goodput` says; 0 where it can't draft."""
        return self._plans.goodput(ask, num_alike) if self._max_len else 0.0

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        chain = self._proposed.pop(ask.key, None)
        if chain is None:
            return
        stood, tested = tree.trace(verdict.token_ids)
        own = len(chain.token_ids)
        if tested:
            self._plans.learn(chain.plan, ask, sum(n < own for n in stood), sum(n < own for n in tested))
        keys = chain.all_keys
        for node in tested:
            self._scores.learn(keys[node], node in stood)

    def forget(self, sequence: Sequence) -> None:
        self._proposed.pop(sequence.key, None)
        self._plans.forget(sequence.key)
        self._cache.drop(sequence.key)

    def check_integrity(self) -> None:
        """Assert that the side layer's pages are in order."""
        self._cache.check_integrity()

    def _propose(self, asks: Items[DraftAsk]) -> dict[SequenceKey, _Chain]:
        chosen = self._plans.choose(asks)
        self._taps.expect(chosen.promising)
        for ask in chosen.soon:
            self._taps.watch(ask.key)
        asks, plan = chosen.asks, chosen.plan
        if not asks or not plan.max_len:
            return {}
        busy = {ask.key for ask in asks}
        begin, rounds = time.perf_counter(), Rounds()
        ready, hidden, num_rows = self._catch_up(asks, plan, busy)
        if hidden is None:
            return {}
        if num_rows > FEW_ROWS * len(ready):
            rounds.catch_up_seconds = time.perf_counter() - begin  # prompts are no part of a round
            begin = time.perf_counter()
        going, own = self._extend(ready, hidden)
        while True:
            rounds.count += 1
            rounds.rows += len(going)
            if rounds.count >= plan.max_len:
                break
            places = [place for place, chain in enumerate(going) if self._goes_on(chain, busy)]
            if not places:
                break
            if len(places) < len(going):
                going, own = [going[place] for place in places], own.take(np.array(places, dtype=np.int32))
            own = self._run_drafted(going, own)
            going, own = self._extend(going, own)
        context = sum(len(ask.token_ids) for ask in asks) // len(asks)
        self._plans.spent(plan, len(asks), context, rounds, time.perf_counter() - begin)
        chains = {chain.ask.key: chain for chain in ready}
        self._proposed |= chains
        return chains

    def _run_drafted(self, chains: Items[_Chain], own: Hidden) -> Hidden:
        """The newest token of each chain, behind the layer's own output."""
        tokens = np.array([chain.token_ids[-1] for chain in chains], dtype=np.int32)
        positions = np.array([len(chain.cache.tokens) for chain in chains], dtype=np.int32)
        pages = [chain.cache.cache.pages.view for chain in chains]
        rows = Rows.plain(tokens, np.arange(len(chains), dtype=np.int32), positions, pages)
        own = self._model.run_next(rows, own)
        for index, chain in enumerate(chains):
            chain.cache.ran(tokens[index : index + 1])
        return own

    def _catch_up(
        self, asks: Items[DraftAsk], plan: DraftPlan, busy: set[SequenceKey]
    ) -> tuple[list[_Chain], Hidden | None, int]:
        """Run the places whose states are new, in the stead of what was drafted there.

        Returns those that can draft, the layer's output behind their last tokens (None: nobody), and how many rows ran.
        """
        chains: list[_Chain] = []
        parts: list[Ids] = []
        states: list[NDArray[np.float32]] = []
        for ask in asks:
            own = self._cache.get(ask.key)
            new = self._new_states(ask, own)
            if new is None or not self._cache.grow(own, len(own.tokens) + len(new), busy):
                continue
            first = own.base + len(own.tokens) + 1
            chains.append(_Chain(ask, own=own, plan=plan))
            parts.append(ask.token_ids[first : first + len(new)])
            states.append(new)
        if not chains:
            return [], None, 0
        owners = [chain.cache for chain in chains]
        lengths = [len(part) for part in parts]
        rows, seen = self._rows(owners, parts), states[0] if len(states) == 1 else np.concatenate(states)
        last = (np.cumsum(lengths, dtype=np.int32) - 1).astype(np.int32)
        if len(rows) > FEW_ROWS * len(parts):
            rest = np.setdiff1d(np.arange(len(rows), dtype=np.int32), last).astype(np.int32)
            self._model.fill(rows.take(rest), np.ascontiguousarray(seen[rest]))
            hidden = self._model.run_first(rows.take(last), np.ascontiguousarray(seen[last]))
        else:
            hidden = self._model.run_first(rows, seen)
            hidden = hidden if len(last) == len(rows) else hidden.take(last)
        for own, part in zip(owners, parts, strict=True):
            own.ran(part)
            own.num_real = len(own.tokens)
        ready = [place for place, own in enumerate(owners) if own.base == 0 or own.num_real >= LEAST_PLACES]
        if len(ready) == len(chains):
            return chains, hidden, len(rows)
        taken = hidden.take(np.array(ready, dtype=np.int32)) if ready else None
        return [chains[place] for place in ready], taken, len(rows)

    def _new_states(self, ask: DraftAsk, own: OwnSequence) -> NDArray[np.float32] | None:
        """States of the places that follow those that ran; None if the last place's are not there.

        Drafted rows are cut off. Behind a hole the sequence begins anew.
        """
        own.cut(own.num_real)
        seen = self._taps.take(ask.key, len(ask.token_ids) - 1)
        if seen is None:
            return None
        follows = own.base + len(own.tokens)
        if seen.first > follows or len(own.tokens) == 0:
            own.cut(0)
            own.base = follows = seen.first
        states = seen.states[follows - seen.first :]
        return states if len(states) else None

    def _rows(self, owners: Items[OwnSequence], parts: Items[Ids]) -> Rows:
        """The next tokens of each sequence."""
        lengths = [len(part) for part in parts]
        starts = [len(own.tokens) for own in owners]
        positions = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        return Rows.plain(
            np.concatenate(parts).astype(np.int32),
            np.repeat(np.arange(len(parts), dtype=np.int32), lengths),
            np.concatenate(positions).astype(np.int32),
            [own.cache.pages.view for own in owners],
        )

    def _extend(self, chains: list[_Chain], hidden: Hidden) -> tuple[list[_Chain], Hidden]:
        """A token more for each that is sure enough of it; returns those, and their rows of `hidden`."""
        greedy = [place for place, chain in enumerate(chains) if is_plain_greedy(chain.ask)]
        if len(greedy) == len(chains):
            took = self._extend_greedily(chains, hidden)
        else:
            drawn = [place for place in range(len(chains)) if place not in set(greedy)]
            took = self._extend_by_drawing([chains[p] for p in drawn], hidden.take(np.array(drawn, dtype=np.int32)))
            if greedy:
                some = hidden.take(np.array(greedy, dtype=np.int32))
                took |= self._extend_greedily([chains[p] for p in greedy], some)
        kept = [place for place, chain in enumerate(chains) if chain.ask.key in took]
        if len(kept) == len(chains):
            return chains, hidden
        return [chains[place] for place in kept], hidden.take(np.array(kept, dtype=np.int32))

    def _extend_greedily(self, chains: Items[_Chain], hidden: Hidden) -> set[SequenceKey]:
        """Without processors the likeliest token is the draw. Raises NumericError for damaged logits."""
        top = self._model.top(hidden, min(2, self._model.num_tokens))
        sure = np.exp(top.logits - top.log_sum_exp[:, None])
        if not np.isfinite(sure).all():
            raise NumericError("the side layer's logits are not finite", hint="train the drafter again")
        took: set[SequenceKey] = set()
        for chain, ids, shares in zip(chains, top.ids.tolist(), sure.tolist(), strict=True):
            place, before = len(chain.token_ids), chain.chance
            if self._take(chain, Drawn(ids[0], shares[0])):
                took.add(chain.ask.key)
                for rank in range(1, len(ids)):
                    key = True, min(place, LATER), rank, _bucket(shares[rank])
                    score = self._scores.rate(key)
                    if before * score >= chain.plan.keep_price > 0:
                        chain.leaves.append((place, ids[rank], score, key))
        return took

    def _extend_by_drawing(self, chains: Items[_Chain], hidden: Hidden) -> set[SequenceKey]:
        """With the target's processors, noise and grammar. Raises NumericError for damaged logits."""
        logits = self._model.logits(hidden)
        took: set[SequenceKey] = set()
        for chain, drawn in zip(chains, draw(self._sample_rows, logits, chains), strict=True):
            if isinstance(drawn, NumericError):
                raise drawn
            if isinstance(drawn, Drawn) and self._take(chain, drawn):
                took.add(chain.ask.key)
        return took

    def _take(self, chain: _Chain, drawn: Drawn) -> bool:
        """Append the token if it is likely enough to stand."""
        key = chain.ask.greedy, min(len(chain.token_ids), LATER), 0, _bucket(drawn.sure)
        score = self._scores.rate(key)
        if chain.chance * score < chain.plan.keep_price:
            return False
        chain.append(drawn, score)
        chain.keys.append(key)
        return True

    def _goes_on(self, chain: _Chain, busy: set[SequenceKey]) -> bool:
        """Worth another token, and there are pages."""
        if chain.room <= 0 or chain.chance < chain.plan.draft_price:
            return False
        return self._cache.grow(chain.cache, len(chain.cache.tokens) + 1, busy)

    def _fail(self, error: Exception) -> None:
        tell_failure("the eagle drafter", error)
        self._max_len = 0
        self._taps.expect(False)
        self._proposed.clear()
        self._cache.clear()


def _bucket(sure: float) -> int:
    return min(BUCKETS - 1, int(sure * BUCKETS))


def _prior(key: ScoreKey) -> float:
    return (key[3] + 0.5) / BUCKETS
