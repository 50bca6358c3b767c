"""A small model drafts: its K/V follow the text, its limits and failures touch nobody's tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.core import DraftParams, Request, Rows, SamplingParams
from offramp.draft import DRAFT_MODEL, MAX_NODES, Drafters, make_drafter
from offramp.draft.model import ModelDrafter
from offramp.draft.own_model import CATCH_UP_ROWS
from offramp.draft.plans import FixedPlans
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError, NumericError
from offramp.model.executor import Hidden, LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.running import drain, run, run_plain
from offramp.testing.toy import toy_config, toy_source
from tests.draft.weighted import cut_model, model_maker

VOCAB = 250
CONTEXT = 384
CONFIG = toy_config(num_layers=3, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB)
SOURCE = toy_source(CONFIG, seed=7)
TARGET = build_executor(SOURCE, kv="f16", num_pages=40, threads=1)
DRAFT = cut_model(SOURCE, 2)


class Watched:
    """Writes down the positions of all rows, and fails when told to."""

    def __init__(self, executor: LayerExecutor) -> None:
        self._executor = executor
        self.positions: list[list[int]] = []
        self.failing: Exception | None = None
        self.spoiled = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        if self.failing is not None:
            raise self.failing
        self.positions.append(rows.positions.tolist())
        return self._executor.run_layers(h, rows, start, stop)

    def logits(self, h: Hidden) -> np.ndarray:
        logits = self._executor.logits(h)
        return np.full_like(logits, np.nan) if self.spoiled else logits


def request(name: str = "r", prompt: int = 9, max_tokens: int = 30, temperature: float = 0.0) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[(5 * place) % 240 for place in range(prompt)],
        params=SamplingParams(temperature=temperature, max_tokens=max_tokens, logprobs=1),
        seed=2,
    )


def engine_of(drafter: ModelDrafter, **settings: int) -> Engine:
    return Engine(TARGET, max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows, **settings)


def check(drafter: ModelDrafter, asked: Request, target: LayerExecutor = TARGET) -> Engine:
    engine = Engine(target, max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows)
    told = run(engine, [asked])["r", 0]
    alone = run_plain(target, asked, max_context=CONTEXT)["r", 0]
    assert (told.token_ids, told.logprobs) == (alone.token_ids, alone.logprobs)
    drafter.check_integrity()
    assert drafter.num_used_pages == 0
    return engine


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_target_that_drafts_for_itself_accepts_all(temperature: float) -> None:
    """With the target's own noise, so also where tokens are drawn."""
    drafter = model_maker(TARGET, TARGET, FixedPlans((), 4))()
    engine = check(drafter, request(temperature=temperature))
    assert engine.statistics.acceptance_rate == 1.0
    assert engine.statistics.num_steps == 6


def test_a_prompt_runs_once_and_accepted_drafts_do_not_run_again() -> None:
    watched = Watched(TARGET)
    check(model_maker(TARGET, watched, FixedPlans((), 4))(), request())  # type: ignore[arg-type]
    positions = [position for call in watched.positions for position in call]
    assert positions == sorted(set(positions)), "each position once, in order"


def test_rejected_drafts_are_trimmed_and_run_anew() -> None:
    watched = Watched(DRAFT)
    engine = check(model_maker(TARGET, watched, FixedPlans((), 4))(), request())  # type: ignore[arg-type]
    statistics = engine.statistics
    rejected = statistics.num_draft_tokens - statistics.num_accepted_tokens
    assert rejected > 10
    assert statistics.num_accepted_tokens > 5
    num_rows = sum(map(len, watched.positions))
    assert num_rows <= 9 + statistics.num_draft_tokens + statistics.num_steps


def test_long_prompts_run_in_chunks_beside_the_others() -> None:
    watched = Watched(DRAFT)
    check(model_maker(TARGET, watched)(), request(prompt=CATCH_UP_ROWS + 40))  # type: ignore[arg-type]
    assert [len(call) for call in watched.positions[:2]] == [CATCH_UP_ROWS, 41]


def test_a_shorter_context_ends_drafting_not_the_request_b43() -> None:
    drafter = model_maker(TARGET, DRAFT, max_context=64)()
    engine = check(drafter, request(prompt=60, max_tokens=50))
    assert 0 < engine.statistics.num_drafts < 5
    longer = check(model_maker(TARGET, DRAFT, max_context=64)(), request(prompt=70))
    assert longer.statistics.num_drafts == 0


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("target_rows", "draft_rows"), [(256, 264), (264, 256), (250, 264)])
def test_padded_vocabularies_draft_shared_ids_alone_b65(target_rows: int, draft_rows: int, temperature: float) -> None:
    """250 tokens, and more rows: the draft model finds its padding very likely."""
    target, draft = (
        cut_model(SOURCE, num_layers, more_ids=rows - VOCAB, num_pages=40, loud=loud)
        for num_layers, rows, loud in [(3, target_rows, 0.1), (2, draft_rows, 9.0)]
    )
    drafter = model_maker(target, draft, num_shared=VOCAB)()
    proposed: list[int] = []
    propose = drafter.propose

    def watch(asks):  # type: ignore[no-untyped-def]
        trees = propose(asks)
        proposed.extend(token for tree in trees for token in tree.token_ids)
        return trees

    drafter.propose = watch  # type: ignore[method-assign]
    engine = check(drafter, request(temperature=temperature), target)
    assert engine.statistics.num_accepted_tokens > 5
    assert max(proposed) < VOCAB


def test_a_draft_model_of_fewer_ids_drafts_those() -> None:
    smaller = cut_model(toy_source(replace(CONFIG, vocab_size=242), seed=7), 2)
    check(model_maker(TARGET, smaller)(), request())


@pytest.mark.parametrize("how", ["raises", "spoils", "memory"])
def test_a_failing_draft_model_is_dropped_and_requests_go_on(how: str, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(DRAFT)
    drafter = model_maker(TARGET, watched)()  # type: ignore[arg-type]
    engine = engine_of(drafter)
    asked = [request("r"), request("s", prompt=20)]
    for each in asked:
        engine.add_request(each)
    told = {}
    for step in range(4):
        for event in engine.step():
            told.setdefault((event.request_id, 0), []).extend(event.token_ids)
        if step == 1:
            watched.failing = {"raises": NumericError("bad", hint="none"), "memory": MemoryError("none left")}.get(how)
            watched.spoiled = how == "spoils"
    rest = drain(engine)
    for each in asked:
        alone = run_plain(TARGET, each, max_context=CONTEXT)[each.request_id, 0]
        assert told[each.request_id, 0] + rest[each.request_id, 0].token_ids == alone.token_ids
    assert drafter.max_nodes == drafter.num_used_pages == 0
    assert caplog.text.count("drafts no more") == 1
    drafter.check_integrity()


def test_too_few_pages_go_to_those_asked_about_last() -> None:
    small = cut_model(SOURCE, 2, num_pages=3)
    drafter = model_maker(TARGET, small)()
    engine = engine_of(drafter, max_num_seqs=8)
    asked = [request(f"r{index}", prompt=20 + index) for index in range(6)]
    told = run(engine, asked)
    for each in asked:
        alone = run_plain(TARGET, each, max_context=CONTEXT)[each.request_id, 0]
        assert told[each.request_id, 0].token_ids == alone.token_ids
    assert engine.statistics.num_drafts > 0
    drafter.check_integrity()
    assert drafter.num_used_pages == 0


def test_it_joins_others_as_one_tree() -> None:
    drafters = Drafters(makers={DRAFT_MODEL: model_maker(TARGET, DRAFT)})
    engine = Engine(
        TARGET, max_context=CONTEXT, drafter=make_drafter("model,suffix", drafters), sample_rows=sample_rows
    )
    asked = replace(request(prompt=40), drafting=DraftParams(max_draft=MAX_NODES))
    told = run(engine, [asked])["r", 0]
    assert told.token_ids == run_plain(TARGET, asked, max_context=CONTEXT)["r", 0].token_ids


@pytest.mark.parametrize("name", ["model", "early_exit", "model,suffix"])
def test_without_weights_it_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{name.partition(',')[0]}' needs"):
        make_drafter(name)
