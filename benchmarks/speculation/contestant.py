"""A way of drafting at work: an engine of its own over the one loaded model, timed step by step.

All contestants write the same K/V pages. That is sound because each runs its requests to the end before another one
begins, and none keeps a prefix cache: nothing of a page is read after its request has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from benchmarks.driving import drive
from offramp.core import Request, RequestOptions, SamplingParams
from offramp.draft import DRAFTERS, OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.llm.costs import COSTS, load_costs
from offramp.llm.exit_settings import NO_EXITS, ExitSettings
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_engine, make_request
from offramp.llm.serving import Serving
from offramp.model.model_cache import default_cache

STREAMS = 16
STORE = "64MiB"
"""Of texts learned from earlier outputs: the default of `draft_memory`."""


@dataclass(frozen=True, slots=True)
class Method:
    """A drafter, with or without the store of earlier outputs and the weights that were loaded with the model."""

    name: str
    draft: str
    store: bool = True
    weights: bool = False  # exit pack, drafter pack, draft model


PLAIN, AUTO = Method("off", OFF), Method("auto", "auto")
STORE_OFF = Method("auto, store off", "auto", store=False)
METHODS = (PLAIN, AUTO, STORE_OFF, Method("suffix", "suffix"), Method("ngram", "ngram"))


def registered() -> list[Method]:
    """The methods that this version has."""
    return [method for method in METHODS if method.draft in DRAFTERS]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of an engine at one time, or what they grew by."""

    steps: int
    draft_s: float
    run_s: float
    step_s: float
    drafts: int
    emitted: int  # tokens of the steps in which they ran
    drafted: Counter[int]  # by position
    accepted: Counter[int]  # by position

    @classmethod
    def read(cls, statistics: Statistics) -> Counts:
        return cls(
            statistics.num_steps,
            statistics.draft_seconds,
            statistics.run_seconds,
            statistics.step_seconds,
            statistics.num_drafts,
            statistics.num_emitted_tokens,
            Counter(statistics.num_draft_tokens_per_pos),
            Counter(statistics.num_accepted_tokens_per_pos),
        )

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.steps - before.steps,
            self.draft_s - before.draft_s,
            self.run_s - before.run_s,
            self.step_s - before.step_s,
            self.drafts - before.drafts,
            self.emitted - before.emitted,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """One run. Seconds from its start; decoding is what comes after every stream has its first token."""

    token_ids: list[list[int]]
    first: float
    total: float
    decoded: int  # tokens that came after `first`
    counts: Counts  # while decoding
    predicted_s: float = 0.0  # by the cost model before each of those steps, all together
    plain_step_s: float = 0.0  # by the cost model: one row at their mean context

    @property
    def tokens(self) -> int:
        return sum(map(len, self.token_ids))

    @property
    def decode_s(self) -> float:
        return self.total - self.first


def run_together(engine: Engine, requests: Sequence[Request]) -> Sample:
    """All requests at once, each to its end; nothing is predicted."""
    ran = drive(engine, requests, Counts.read)
    return Sample(ran.token_ids, ran.first, ran.total, ran.decoded, ran.at_end.since(ran.at_first))


def cost_table(loaded: LoadedModel) -> CostTable:
    """What steps of the model take, kept or measured now."""
    table = load_costs(loaded, default_cache() / COSTS).table
    assert table is not None
    return table


class WatchedCosts(MeasuredCosts):
    """Keeps what it would have said of each step before it learned how long that step took."""

    def __init__(self, table: CostTable) -> None:
        super().__init__(table)
        self.steps: list[tuple[int, float]] = []  # context, predicted seconds

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        predicted = self.seconds(num_rows, num_layers, context, num_head_rows=num_head_rows)
        self.steps.append((context, predicted))
        super().observe(num_rows, num_layers, context, seconds, num_head_rows=num_head_rows)


class Contestant:
    """One method with what it has learned so far."""

    def __init__(self, loaded: LoadedModel, table: CostTable, method: Method) -> None:
        if not method.weights:
            loaded = replace(loaded, exits=None, drafter=None, draft=None)
        self._loaded = loaded
        self._serving = Serving(
            draft=OFF,
            draft_memory=STORE if method.store else 0,
            draft_model=None if loaded.draft is None else loaded.draft.name,
            drafter=None if loaded.drafter is None else loaded.drafter.folder,
            exits=NO_EXITS if loaded.exits is None else ExitSettings(pack=loaded.exits.folder),
            max_num_seqs=STREAMS,
        )
        self._options = RequestOptions(draft=method.draft)
        self._costs = WatchedCosts(table)
        self._engine = make_engine(loaded, self._serving, self._costs, prefix_cache=False)
        self._numbers = count()

    def run(self, prompts: Sequence[list[int]], new_tokens: int) -> Sample:
        """All prompts at once, greedy, each to its end token or length."""
        requests = [self._request(prompt, new_tokens) for prompt in prompts]
        self._costs.steps.clear()
        sample = run_together(self._engine, requests)
        predicted_s, plain_step_s = self._predicted(sample.counts.steps)
        return replace(sample, predicted_s=predicted_s, plain_step_s=plain_step_s)

    def _request(self, prompt: list[int], new_tokens: int) -> Request:
        params = SamplingParams(temperature=0, max_tokens=new_tokens, seed=0)
        drafting = self._serving.drafting(self._options, self._loaded.tokenizer)
        return make_request(self._loaded, str(next(self._numbers)), prompt, params, drafting)

    def _predicted(self, num_steps: int) -> tuple[float, float]:
        """Seconds of the latest steps as they were predicted, and those of one row at their mean context."""
        steps = self._costs.steps[len(self._costs.steps) - num_steps :]
        if not steps:
            return 0.0, 0.0
        context = sum(context for context, _ in steps) // len(steps)
        plain = self._costs.seconds(1, self._loaded.config.num_layers, context)
        return sum(predicted for _, predicted in steps), plain
