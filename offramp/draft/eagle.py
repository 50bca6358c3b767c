"""A side layer over the target's hidden states drafts (EAGLE).

What: one layer with K/V of its own sees the target's hidden states of all places that ran and the token behind each,
and says the token after that; then it goes on from its own output. Where states are lacking (a cached prefix, a
prompt's beginning that is too long ago, what ran while drafts did not pay) it sees the rest alone. The second likeliest
token joins as a leaf where it is worth a row; to go on behind leaves has not been worth its time (docs/log.md).
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
from math import isfinite

import numpy as np

from offramp.core import DraftAsk, SequenceKey, TokenTree, Verdict
from offramp.draft.drawing import DraftChain, Drawn, SampleRows, draw, is_plain_greedy
from offramp.draft.own_cache import OwnSequence
from offramp.draft.plans import NO_PLAN, DraftPlan, DraftPlans, Rounds
from offramp.draft.scores import ScoreTable
from offramp.draft.side_model import Guesses, SideModel
from offramp.draft.side_texts import FEW_ROWS, SideTexts
from offramp.draft.tapped import TappedStates
from offramp.draft.weighted import WeightedDrafter
from offramp.errors import NumericError
from offramp.model.executor import Hidden

BUCKETS = 12
"""Of confidence, within which drafts are thought to stand alike."""
LATER = 2
"""Draft tokens from this one on (from 0) are thought to stand alike."""
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


class EagleDrafter(WeightedDrafter[_Chain]):
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
        super().__init__("the eagle drafter", plans, max_len)
        self._model = model
        self._taps = taps
        self._sample_rows = sample_rows
        self._texts = SideTexts(model, taps)
        self._scores: ScoreTable[ScoreKey] = ScoreTable(_prior)
        self._num_guesses = min(2, model.num_tokens)

    @property
    def num_used_pages(self) -> int:
        return self._texts.num_used

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        chain = self._proposed.pop(ask.key, None)
        if chain is None:
            return
        stood, tested = tree.trace(verdict.token_ids)
        self._plans.learn(chain.plan, ask, chain.judged(len(stood), verdict))
        keys = chain.all_keys
        for node in tested:
            self._scores.learn(keys[node], node in stood)

    def check_integrity(self) -> None:
        """Assert that the side layer's pages are in order."""
        self._texts.check_integrity()

    def _propose(self, asks: Items[DraftAsk]) -> dict[SequenceKey, _Chain]:
        chosen = self._plans.choose(asks)
        if not asks:
            return {}
        self._taps.expect(chosen.promising)
        for ask in chosen.soon:
            self._taps.watch(ask.key)
        asks, plan = chosen.asks, chosen.plan
        if not asks or not plan.max_len:
            return {}
        busy = {ask.key for ask in asks}
        begin, rounds = time.perf_counter(), Rounds()
        num_guesses = self._num_guesses if any(map(is_plain_greedy, asks)) else 0
        caught = self._texts.catch_up(asks, busy, num_guesses)
        if caught is None:
            return {}
        ready = [_Chain(ask, own=own, plan=plan) for ask, own in caught.ready]
        if caught.num_rows > FEW_ROWS * len(ready):
            rounds.catch_up_seconds = time.perf_counter() - begin  # prompts are no part of a round
            begin = time.perf_counter()
        rounds.texts = rounds.rows = len(ready)
        going, own = self._extend(ready, caught.hidden, caught.guesses)
        while True:
            rounds.count += 1
            if rounds.count >= plan.max_len:
                break
            places = [place for place, chain in enumerate(going) if self._goes_on(chain, busy)]
            if not places:
                break
            if len(places) < len(going):
                going, own = [going[place] for place in places], own.take(np.array(places, dtype=np.int32))
            rounds.rows += len(going)
            tokens = np.array([chain.token_ids[-1] for chain in going], dtype=np.int32)
            own, guesses = self._texts.run_drafted([chain.cache for chain in going], tokens, own, num_guesses)
            going, own = self._extend(going, own, guesses)
        context = sum(len(ask.token_ids) for ask in asks) // len(asks)
        rounds.nodes = sum(len(chain.all_keys) for chain in ready)
        self._plans.spent(plan, len(asks), context, rounds, time.perf_counter() - begin)
        return {chain.ask.key: chain for chain in ready}

    def _extend(self, chains: list[_Chain], hidden: Hidden, guesses: Guesses) -> tuple[list[_Chain], Hidden]:
        """A token more for each that is sure enough of it; returns those, and their rows of `hidden`."""
        drawn: list[int] = []
        took: list[int] = []
        for place, chain in enumerate(chains):
            chain.refused = True
            if not is_plain_greedy(chain.ask):
                drawn.append(place)
            elif self._extend_greedily(chain, guesses[place]):
                took.append(place)
        if drawn:
            some = hidden if len(drawn) == len(chains) else hidden.take(np.array(drawn, dtype=np.int32))
            took += [drawn[at] for at in self._extend_by_drawing([chains[place] for place in drawn], some)]
        if len(took) == len(chains):
            return chains, hidden
        took.sort()
        return [chains[place] for place in took], hidden.take(np.array(took, dtype=np.int32))

    def _extend_greedily(self, chain: _Chain, guesses: Items[tuple[int, float]]) -> bool:
        """Without processors the likeliest token is the draw. Raises NumericError for damaged logits."""
        if not all(isfinite(share) for _, share in guesses):
            raise NumericError("the side layer's logits are not finite", hint="train the drafter again")
        place, before = len(chain.token_ids), chain.chance
        if not self._take(chain, Drawn(*guesses[0])):
            return False
        for rank, (token, share) in enumerate(guesses[1:], start=1):
            key = True, min(place, LATER), rank, _bucket(share)
            score = self._scores.rate(key)
            if before * score >= chain.plan.keep_price > 0:
                chain.leaves.append((place, token, score, key))
        return True

    def _extend_by_drawing(self, chains: Items[_Chain], hidden: Hidden) -> list[int]:
        """With the target's processors, noise and grammar; returns who took a token. Raises as above."""
        logits = self._model.logits(hidden)
        took: list[int] = []
        for place, (chain, drawn) in enumerate(zip(chains, draw(self._sample_rows, logits, chains), strict=True)):
            if isinstance(drawn, NumericError):
                raise drawn
            if isinstance(drawn, Drawn) and self._take(chain, drawn):
                took.append(place)
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
        return self._texts.has_room(chain.cache, busy)

    def _drop(self, key: SequenceKey) -> None:
        self._texts.drop(key)

    def _clear(self) -> None:
        self._taps.expect(False)
        self._texts.clear()


def _bucket(sure: float) -> int:
    return min(BUCKETS - 1, int(sure * BUCKETS))


def _prior(key: ScoreKey) -> float:
    return (key[3] + 0.5) / BUCKETS
