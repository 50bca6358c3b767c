"""The model's own first layers draft: the tokens of plain decoding, no layer twice for a row, and nothing left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import NO_DRAFT, DraftParams, ExitParams, Request, Rows, SamplingParams
from offramp.draft import EARLY_EXIT, MAX_NODES, Drafters, make_drafter
from offramp.draft.choice import DrafterChoice
from offramp.draft.early_plans import PaidExits
from offramp.draft.length.fixed import FixedLength
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.model.executor import HeadId, Hidden, LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import Told, drain, hear, run, run_plain
from offramp.testing.toy import toy_config, toy_source
from tests.draft.weighted import LayeredCosts, early_maker, heads_of

VOCAB = 40
CONTEXT = 96
NUM_LAYERS = 6
KINDS: dict[str, tuple[str, int | None]] = {"shared": ("shared", None), "adapter": ("adapter", VOCAB)}
SAMPLING: dict[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=20, logprobs=1),
    "sampled": SamplingParams(temperature=0.8, max_tokens=20, logprobs=1, repetition_penalty=1.1),
}


@cache
def model(num_pages: int = 24) -> LayerExecutor:
    config = toy_config(
        num_layers=NUM_LAYERS,
        hidden_size=32,
        intermediate_size=32,
        num_heads=2,
        num_kv_heads=1,
        vocab_size=VOCAB,
    )
    return build_executor(toy_source(config, seed=3), kv="f16", num_pages=num_pages, threads=1)


def requests(count: int, sampling: str) -> list[Request]:
    return [
        Request(
            request_id=f"r{index}",
            prompt_token_ids=[(7 * index + 3 * place) % VOCAB for place in range(1 + 9 * index)],
            params=SAMPLING[sampling],
            seed=index,
        )
        for index in range(count)
    ]


@cache
def truth(index: int, sampling: str) -> Told:
    request = requests(index + 1, sampling)[index]
    return run_plain(model(), request, max_context=CONTEXT)[f"r{index}", 0]


def engine_of(executor: LayerExecutor, exits: Sequence[int], kind: str = "shared", **settings: object) -> Engine:
    plans = settings.pop("plans", None)
    assert plans is None or isinstance(plans, FixedPlans | PaidExits)
    name, num_ids = KINDS[kind]
    heads, draft_rows = heads_of(executor, tuple(exits), name, num_ids), DraftRows(executor)
    drafters = Drafters(makers={EARLY_EXIT: early_maker(executor, heads, draft_rows, plans)})
    settings.setdefault("drafter", make_drafter(EARLY_EXIT, drafters))
    return Engine(
        executor,
        max_context=CONTEXT,
        draft_rows=draft_rows,
        sample_rows=sample_rows,
        **settings,  # type: ignore[arg-type]
    )


def check(engine: Engine, sampling: str, count: int = 4) -> None:
    for (name, choice), told in run(engine, requests(count, sampling)).items():
        alone = truth(int(name[1:]), sampling)
        assert choice == 0
        assert (told.token_ids, told.logprobs) == (alone.token_ids, alone.logprobs), name


def plans_of(name: str, exits: Sequence[int]) -> DraftPlans:
    if name == "paid":
        return PaidExits(LayeredCosts(NUM_LAYERS), NUM_LAYERS, exits, MAX_NODES)
    return FixedPlans(exits, 6, stay_price=0.3)


@pytest.mark.parametrize("plans", ["fixed", "paid"])
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exits", [(1,), (2,), (5,), (1, 3, 5)], ids=str)
def test_every_exit_layer_brings_the_same_tokens_b72(
    exits: tuple[int, ...], kind: str, sampling: str, plans: str
) -> None:
    engine = engine_of(model(), exits, kind, plans=plans_of(plans, exits), max_num_batched_tokens=24)
    check(engine, sampling)
    if plans == "fixed":
        assert engine.statistics.num_drafts > 10
        assert engine.statistics.num_accepted_tokens > 0


def test_exit_layer_two_of_six_with_six_speculations_runs_b70() -> None:
    for sampling in SAMPLING:
        engine = engine_of(model(), (2,), plans=FixedPlans((2,), 6))
        check(engine, sampling, count=1)
        assert max(engine.statistics.num_draft_tokens_per_pos) == 5


@pytest.mark.parametrize("num_pages", [3, 4])
def test_preempted_sequences_go_on_drafting(num_pages: int) -> None:
    executor = model(num_pages)
    engine = engine_of(executor, (1, 3), plans=FixedPlans((1, 3), 5), max_num_seqs=4)
    check(engine, "greedy", count=5)
    assert engine.statistics.num_preemptions > 0
    assert engine.statistics.num_accepted_tokens > 0


@pytest.mark.parametrize("batching", ["compact", "barrier"])
@pytest.mark.parametrize("fill", ["deferred", "propagate"])
def test_beside_requests_whose_tokens_leave_early(fill: str, batching: str) -> None:
    """One forward pass: rows that leave, debts, prompts in chunks, rows that wait at several depths."""
    policy = ScriptedExits((2, 4), lambda key, output, layer: (output + layer) % 3 != 0, fill=fill)  # type: ignore[arg-type]

    def leaving(executor: LayerExecutor, drafting: bool) -> dict[tuple[str, int], Told]:
        settings: dict[str, object] = {"exit_policies": {"p": policy}, "exit_batching": batching}
        if not drafting:
            settings["drafter"] = None
        engine = engine_of(executor, (1, 3), plans=FixedPlans((1, 3), 4), max_num_batched_tokens=16, **settings)
        asked = requests(4, "greedy")
        early = [replace(each, request_id=f"e{each.request_id}", exits=ExitParams(policy="p")) for each in asked]
        told = run(engine, [request for pair in zip(asked, early, strict=True) for request in pair])
        assert (engine.statistics.num_accepted_tokens > 10) == drafting
        return told

    mine, plain = leaving(model(), True), leaving(model(), False)
    assert mine.keys() == plain.keys()
    for key, told in mine.items():
        assert (told.token_ids, told.exit_layers) == (plain[key].token_ids, plain[key].exit_layers), key


class Failing:
    """Heads that fail once told to."""

    def __init__(self, executor: LayerExecutor) -> None:
        self._executor = executor
        self.how: str | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        if self.how == "deeper" and start > 0 and stop < NUM_LAYERS:
            raise RuntimeError("a layer failed between two exits")
        return self._executor.run_layers(h, rows, start, stop)

    def logits(self, h: Hidden, head: HeadId | None = None) -> NDArray[np.float32]:
        logits = self._executor.logits(h) if head is None else self._executor.logits(h, head)
        if head is not None and self.how == "raises":
            raise MemoryError("no room for logits")
        return np.full_like(logits, np.nan) if head is not None and self.how == "spoiled" else logits


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("how", ["raises", "spoiled", "deeper"])
def test_failing_heads_are_dropped_and_requests_go_on(
    how: str, sampling: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of drafts: the rows that were started go on from where they wait."""
    failing = Failing(model())
    engine = engine_of(failing, (1, 3, 5), plans=FixedPlans((1, 3, 5), 6, stay_price=0.5))  # type: ignore[arg-type]
    asked = requests(4, sampling)
    for request in asked:
        engine.add_request(request)
    told: dict[tuple[str, int], Told] = {}
    for _ in range(4):
        hear(engine, told)
    before = engine.statistics.num_drafts
    failing.how = how
    drain(engine, told)
    for (name, _), mine in told.items():
        alone = truth(int(name[1:]), sampling)
        assert (mine.token_ids, mine.logprobs) == (alone.token_ids, alone.logprobs), name
    assert before == engine.statistics.num_drafts > 0
    assert caplog.text.count("self-drafting failed and drafts no more") == 1
    failing.how = None
    check(engine, sampling)
    assert engine.statistics.num_drafts == before


class Counting:
    """Counts how often each position ran through each layer since it last began at the embedding."""

    def __init__(self, executor: LayerExecutor) -> None:
        self._executor = executor
        self.ran: Counter[tuple[int, int]] = Counter()
        self.num_row_layers = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def embed(self, rows: Rows) -> Hidden:
        for position in rows.positions.tolist():
            for layer in range(NUM_LAYERS):
                self.ran.pop((position, layer), None)
        return self._executor.embed(rows)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        for layer in range(start, stop):
            self.ran.update((position, layer) for position in rows.positions.tolist())
        self.num_row_layers += len(rows) * (stop - start)
        return self._executor.run_layers(h, rows, start, stop)


@pytest.mark.parametrize("exits", [(2,), (1, 3, 5)], ids=str)
def test_no_layer_runs_twice_for_a_row(exits: tuple[int, ...]) -> None:
    counting = Counting(model())
    engine = engine_of(counting, exits, plans=FixedPlans(exits, 6, stay_price=0.3))  # type: ignore[arg-type]
    check(engine, "greedy", count=1)
    assert set(counting.ran.values()) == {1}
    assert counting.num_row_layers == NUM_LAYERS * engine.statistics.num_rows, "every row of a batch, once"
    assert engine.statistics.num_accepted_tokens > 0


def test_nothing_runs_for_requests_that_draft_otherwise_or_not_at_all() -> None:
    counting = Counting(model())
    heads, draft_rows = heads_of(model(), (2,)), DraftRows(counting)  # type: ignore[arg-type]
    drafters = Drafters(makers={EARLY_EXIT: early_maker(model(), heads, draft_rows)})
    choice = DrafterChoice(lambda name: make_drafter(name, drafters), MAX_NODES)
    engine = Engine(counting, max_context=CONTEXT, drafter=choice, draft_rows=draft_rows)  # type: ignore[arg-type]
    names = ["off", "suffix", "off"]
    asked = [
        replace(request, drafting=DraftParams(drafter=name))
        for name, request in zip(names, requests(3, "greedy"), strict=True)
    ]
    run(engine, asked)
    assert counting.num_row_layers == NUM_LAYERS * engine.statistics.num_rows


def test_a_length_of_zero_still_takes_the_started_row_to_its_end() -> None:
    """The drafts were made and then left out: the row of the last token goes on from where it waits."""

    class Nothing(FixedLength):
        def choose(self, asks, trees, load):  # type: ignore[no-untyped-def]
            return [NO_DRAFT for _ in trees]

    engine = engine_of(model(), (2,), plans=FixedPlans((2,), 3), lengths=Nothing())
    check(engine, "sampled")
    assert engine.statistics.num_drafts == 0


def test_costs_hear_nothing_of_steps_that_began_early() -> None:
    costs = LayeredCosts(NUM_LAYERS)
    engine = engine_of(model(), (2,), plans=FixedPlans((2,), 3), costs=costs)
    run(engine, requests(2, "greedy")[1:])
    steps_without = engine.statistics.num_steps - engine.statistics.num_drafts
    assert costs.num_told == steps_without < 4, "the prompt's step, and the last token's"
    assert engine.statistics.estimated_speedup > 0
