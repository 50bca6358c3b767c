"""A small model drafts.

What: a model of the same vocabulary continues the text, one token after the other, with K/V of its own that follow the
text: accepted drafts are not run again, rejected ones are cut off, a prompt runs once, in chunks.
When it helps: a draft model that is several times faster than the target and often says the same.
Cost: a pass of the draft model for each token and its K/V memory; for each kept token a further row of the target.
Exactness: proposes only; the verifier decides. An error of the draft model ends its drafting, never a request.
Source: speculative decoding (arXiv 2211.17192, 2302.01318), length from acceptance and costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import DraftAsk, Ids, SequenceKey, TokenTree, Verdict
from offramp.draft.drawing import DraftChain, Drawn, SampleRows, draw
from offramp.draft.own_cache import OwnSequence
from offramp.draft.own_model import CATCH_UP_ROWS, OwnModel
from offramp.draft.plans import NO_PLAN, DraftPlan, DraftPlans, Rounds
from offramp.draft.scores import ScoreTable
from offramp.draft.weighted import WeightedDrafter
from offramp.errors import NumericError

NEW_ROWS = 2
"""Of a sequence that was asked for in the step before: the last draft, if it was accepted, and the token behind it."""
BUCKETS = 10
"""Of confidence, within which drafts are thought to stand alike."""


@dataclass(slots=True, eq=False)
class _Chain(DraftChain):
    own: OwnSequence | None = None
    plan: DraftPlan = NO_PLAN
    buckets: list[int] | None = None

    @property
    def cache(self) -> OwnSequence:
        assert self.own is not None
        return self.own


class ModelDrafter(WeightedDrafter[_Chain]):
    """Chains of a small model. A step runs at most `CATCH_UP_ROWS` of prompts: a long one never stalls the others."""

    def __init__(self, model: OwnModel, *, plans: DraftPlans, sample_rows: SampleRows, max_len: int) -> None:
        super().__init__("the draft model", plans, max_len)
        self._model = model
        self._cache = model.cache
        self._sample_rows = sample_rows
        self._scores: ScoreTable[tuple[bool, int]] = ScoreTable(_prior)

    @property
    def num_used_pages(self) -> int:
        return self._cache.num_used

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        chain = self._proposed.pop(ask.key, None)
        if chain is None or chain.buckets is None:
            return
        stood, tested = tree.trace(verdict.token_ids)
        self._plans.learn(chain.plan, ask, chain.judged(len(stood), verdict))
        for node in tested:
            self._scores.learn((ask.greedy, chain.buckets[node]), node in stood)

    def check_integrity(self) -> None:
        """Assert that the draft model's pages are in order."""
        self._cache.check_integrity()

    def _propose(self, asks: Items[DraftAsk]) -> dict[SequenceKey, _Chain]:
        for ask in asks:
            if len(ask.token_ids) >= self._model.max_context:
                self._cache.drop(ask.key)  # too long for the draft model, for good
        chosen = self._plans.choose([ask for ask in asks if self._fits(ask)])
        able, plan = chosen.asks, chosen.plan
        if not able or not plan.max_len:
            return {}
        busy = {ask.key for ask in able}
        context = sum(len(ask.token_ids) for ask in able) // len(able)
        begin, rounds = time.perf_counter(), Rounds()
        ready, logits, num_rows = self._catch_up(able, plan, busy)
        if logits is None or num_rows > NEW_ROWS * len(ready):
            rounds.catch_up_seconds = time.perf_counter() - begin  # prompts are no part of a round
            begin = time.perf_counter()
        if logits is None:
            self._plans.spent(plan, len(able), context, rounds, 0.0)
            return {}
        rounds.texts = rounds.rows = len(ready)
        going = self._extend(ready, logits)
        while True:
            rounds.count += 1
            if rounds.count >= plan.max_len:
                break
            going = [chain for chain in going if self._goes_on(chain, busy)]
            if not going:
                break
            rounds.rows += len(going)
            last = [np.array(chain.token_ids[-1:], dtype=np.int32) for chain in going]
            going = self._extend(going, self._model.logits(self._model.run([chain.cache for chain in going], last)))
        rounds.nodes = sum(len(chain.token_ids) for chain in ready)
        self._plans.spent(plan, len(able), context, rounds, time.perf_counter() - begin)
        return {chain.ask.key: chain for chain in ready}

    def _fits(self, ask: DraftAsk) -> bool:
        """The text is short enough, and the draft model knows all of it."""
        return len(ask.token_ids) < self._model.max_context and self._model.knows(ask.token_ids)

    def _catch_up(
        self, asks: Items[DraftAsk], plan: DraftPlan, busy: set[SequenceKey]
    ) -> tuple[list[_Chain], NDArray[np.float32] | None, int]:
        """Run what is new of the texts, in chunks.

        Returns those that caught up, logits behind their last tokens (None: nobody did), and how many rows ran.
        """
        chains: list[_Chain] = []
        parts: list[Ids] = []
        budget = CATCH_UP_ROWS
        for ask in asks:
            own = self._cache.get(ask.key)
            kept = own.trim_to(ask.token_ids)
            part = ask.token_ids[kept : kept + budget]
            if len(part) and self._cache.grow(own, kept + len(part), busy):
                budget -= len(part)
                chains.append(_Chain(ask, own=own, plan=plan, buckets=[]))
                parts.append(part)
        if not chains:
            return [], None, 0
        hidden = self._model.run([chain.cache for chain in chains], parts)
        ready = [index for index, chain in enumerate(chains) if len(chain.cache.tokens) == len(chain.ask.token_ids)]
        num_rows = sum(map(len, parts))
        if not ready:
            return [], None, num_rows
        logits = self._model.logits(hidden.take(np.array(ready, dtype=np.int32)))
        return [chains[index] for index in ready], logits, num_rows

    def _extend(self, chains: Items[_Chain], logits: NDArray[np.float32]) -> list[_Chain]:
        """A token more for each that is sure enough of it; returns those. Raises NumericError for damaged logits."""
        took: list[_Chain] = []
        for chain, drawn in zip(chains, draw(self._sample_rows, logits, chains), strict=True):
            if isinstance(drawn, NumericError):
                raise drawn
            chain.refused = True
            if not isinstance(drawn, Drawn):
                continue  # a request that allows no token there
            bucket = min(BUCKETS - 1, int(drawn.sure * BUCKETS))
            score = self._scores.rate((chain.ask.greedy, bucket))
            if chain.chance * score >= chain.plan.keep_price:
                chain.append(drawn, score)
                assert chain.buckets is not None
                chain.buckets.append(bucket)
                took.append(chain)
        return took

    def _goes_on(self, chain: _Chain, busy: set[SequenceKey]) -> bool:
        """Worth another token, and within the draft model's context and pages."""
        slots = len(chain.cache.tokens) + 1
        if chain.room <= 0 or chain.chance < chain.plan.draft_price or slots >= self._model.max_context:
            return False
        return self._cache.grow(chain.cache, slots, busy)

    def _drop(self, key: SequenceKey) -> None:
        self._cache.drop(key)

    def _clear(self) -> None:
        self._cache.clear()


def _prior(key: tuple[bool, int]) -> float:
    return (key[1] + 0.5) / BUCKETS
