"""Self-speculation: the model's own first layers draft, through the heads of an exit pack.

What: a row runs to the first exit whose word is likely enough to stand, or to the last one of the plan, and the token
there follows as a draft; where even that is too unsure, drafting stops. The step takes the rows up where they wait and
runs the deeper layers for all of them at once: no layer runs twice for a row, and K/V are shared.
When it helps: models whose exits agree with the whole (trained for it, or with adapters), with few streams at once.
Cost: layers up to the exit and a head for each token, one after the other; for each kept token the deeper layers of a
further row.
Exactness: proposes only; the verifier decides. An error of an exit's head ends the drafting, never a request.
Source: LayerSkip (arXiv 2404.16710), an exit per token as in DSSD (2407.21082), exits and length from acceptance and
costs as in DEL (2504.05598).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from offramp.core import DraftAsk, SequenceKey, TokenTree, Verdict
from offramp.draft.drawing import DraftChain, Drawn, SampleRows, draw
from offramp.draft.early_layers import EarlyLayers
from offramp.draft.plans import NO_PLAN, DraftPlan, DraftPlans, Rounds
from offramp.draft.scores import ScoreTable
from offramp.draft.weighted import WeightedDrafter
from offramp.errors import NumericError
from offramp.model.executor import HeadId

BUCKETS = 10
"""Of confidence, within which drafts are thought to stand alike."""

ScoreKey = tuple[int, bool, int]
"""(exit, greedy, bucket)."""


@dataclass(frozen=True, slots=True)
class _Guess:
    """What an exit said of one place, whether it was taken or not."""

    place: int  # draft tokens before it
    key: ScoreKey
    token: int


@dataclass(slots=True, eq=False)
class _Chain(DraftChain):
    plan: DraftPlan = NO_PLAN
    guesses: list[_Guess] = field(default_factory=list)


class EarlyExitDrafter(WeightedDrafter[_Chain]):
    """Chains only. Scores are how often such guesses stood: per exit, confidence, and greedy or not."""

    def __init__(
        self, heads: Mapping[int, HeadId], layers: EarlyLayers, plans: DraftPlans, sample_rows: SampleRows, max_len: int
    ) -> None:
        super().__init__("self-drafting", plans, max_len)
        self._heads = dict(heads)
        self._layers = layers
        self._sample_rows = sample_rows
        self._scores: ScoreTable[ScoreKey] = ScoreTable(_prior)

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        chain = self._proposed.pop(ask.key, None)
        if chain is None:
            return
        stood, _ = tree.trace(verdict.token_ids)
        self._plans.learn(chain.plan, ask, chain.judged(len(stood), verdict))
        for guess in chain.guesses:
            if guess.place <= len(stood) and guess.place < len(verdict.token_ids):
                self._scores.learn(guess.key, guess.token == verdict.token_ids[guess.place])

    def _propose(self, asks: Items[DraftAsk]) -> Mapping[SequenceKey, _Chain]:
        begin = time.perf_counter()
        chosen = self._plans.choose([ask for ask in asks if self._fits(ask)])
        able, plan = chosen.asks, chosen.plan
        if not able or not plan.max_len:
            return {}
        chains = {ask.key: _Chain(ask, plan=plan) for ask in able}
        rounds = Rounds(texts=len(chains))
        going = list(chains.values())
        while going and rounds.count < plan.max_len:
            rounds.count += 1
            took = self._round(plan, going, rounds)
            going = [chain for chain in took if rounds.count < plan.max_len and self._goes_on(plan, chain)]
        context = sum(len(ask.token_ids) for ask in able) // len(able)
        rounds.nodes = sum(len(chain.token_ids) for chain in chains.values())
        self._plans.spent(plan, len(able), context, rounds, time.perf_counter() - begin)
        return chains

    def _fits(self, ask: DraftAsk) -> bool:
        return self._layers.can_draft(ask.key)

    def _round(self, plan: DraftPlan, going: list[_Chain], rounds: Rounds) -> list[_Chain]:
        """One token more for each, from its first exit that is sure enough; returns those that got one."""
        took: list[_Chain] = []
        rounds.rows += len(going)
        for chain in going:
            chain.refused = True
        before = 0
        for layer in plan.exits:
            price = plan.keep_price if layer == plan.exits[-1] else plan.stay_price
            rounds.layers += (layer - before) * len(going)
            rounds.heads += len(going)
            before = layer
            unsure: list[_Chain] = []
            for chain, said in zip(going, self._say(layer, going), strict=True):
                if said is None:
                    continue  # nothing can be drawn there
                drawn, score = said
                if chain.chance * score < price:
                    unsure.append(chain)
                else:
                    chain.append(drawn, score)
                    took.append(chain)
            going = unsure
            if not going:
                break
        return took

    def _say(self, layer: int, chains: Items[_Chain]) -> list[tuple[Drawn, float] | None]:
        """What the exit draws for each, and how likely that is to stand. Raises NumericError for damaged logits."""
        head = self._heads[layer]
        logits = self._layers.logits(self._layers.deepen([chain.ask.key for chain in chains], layer), head)
        said: list[tuple[Drawn, float] | None] = []
        for chain, drawn in zip(chains, draw(self._sample_rows, logits, chains), strict=True):
            if isinstance(drawn, NumericError):
                raise drawn
            if not isinstance(drawn, Drawn):
                said.append(None)
                continue
            bucket = min(BUCKETS - 1, int(drawn.sure * BUCKETS))
            key = layer, chain.ask.greedy, bucket
            chain.guesses.append(_Guess(len(chain.token_ids), key, drawn.token))
            said.append((drawn, self._scores.rate(key)))
        return said

    def _goes_on(self, plan: DraftPlan, chain: _Chain) -> bool:
        """Worth another token, and there is room for it."""
        if chain.room <= 0 or chain.chance < plan.draft_price:
            return False
        return self._layers.extend(chain.ask.key, chain.token_ids[-1])


def _prior(key: ScoreKey) -> float:
    return (key[2] + 0.5) / BUCKETS
