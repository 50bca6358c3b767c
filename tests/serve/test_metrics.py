"""The metrics page: right before anything ran, and equal to what the engine counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from offramp.core import Request, SamplingParams, TokenTree
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.serve.metrics import METRICS_TYPE, EngineCollector, make_registry, metrics_text
from offramp.serve.snapshot import WorkerStatistics, after, snapshot
from offramp.testing.drafters import Propose, ScriptedDrafter, never, oracle_chain
from offramp.testing.running import drain, run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing

NAME = "a model"
CONTEXT = 128


def page(registry: CollectorRegistry) -> dict[str, float]:
    """The page, read back: series -> value; the prefix and the model's label, which must be there, left out."""
    found = {}
    for family in text_string_to_metric_families(metrics_text(registry).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == NAME
            assert sample.name.startswith("offramp:")
            series = sample.name.removeprefix("offramp:") + "".join(f"[{value}]" for value in labels.values())
            found[series] = sample.value
    return found


def page_of(engine: Engine) -> dict[str, float]:
    return page(make_registry([EngineCollector(lambda: snapshot(engine.statistics, 0), NAME)]))


def model() -> ScriptedModel:
    return ScriptedModel(mixing(), num_pages=8)


def ask(name: str, prompt: Sequence[int] = (1, 2, 3), **params: object) -> Request:
    params = {"temperature": 0.0, "max_tokens": 11, **params}
    return Request(request_id=name, prompt_token_ids=prompt, params=SamplingParams(**params), seed=9)  # type: ignore[arg-type]


def drafting(propose: Propose) -> Engine:
    return Engine(model(), max_context=CONTEXT, drafter=ScriptedDrafter(propose, max_nodes=4))


def test_a_fresh_engine_shows_zeros_b113() -> None:
    values = page_of(drafting(never))
    assert set(values.values()) == {0.0}
    assert {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "num_preemptions_total",
        "request_success_total[stop]",
        "request_success_total[length]",
        "request_success_total[abort]",
        "request_success_total[error]",
        "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_emitted_tokens_total",
        "spec_decode_estimated_speedup",
        "early_exit_paid_debts_total",
        "early_exit_propagated_rows_total",
        "early_exit_forced_rows_total",
        "early_exit_involuntary_stays_total",
        "big_little_tokens_total[little]",
        "big_little_tokens_total[big]",
        "big_little_differing_tokens_total",
        "big_little_fallbacks_total",
        "big_little_rollbacks_total",
        "draft_seconds_total",
        "run_seconds_total",
        "step_seconds_total",
        "engine_steps_total",
        "engine_rows_total",
    } == set(values)


def test_a_run_without_any_draft_has_no_nan_b113() -> None:
    engine = drafting(never)
    run(engine, [ask("r")])
    values = page_of(engine)
    assert values["generation_tokens_total"] == 11
    assert values["spec_decode_num_drafts_total"] == values["spec_decode_num_accepted_tokens_total"] == 0
    assert all(math.isfinite(value) for value in values.values())


def test_counters_are_those_of_the_engine() -> None:
    engine = Engine(model(), max_context=CONTEXT)
    prompt = list(range(40))
    run(engine, [ask("a", prompt)])
    run(engine, [ask("b", prompt, max_tokens=2)])
    engine.add_request(ask("c"))
    engine.abort("c")
    drain(engine)
    values = page_of(engine)
    assert values["prompt_tokens_total"] == values["prefix_cache_queries_total"] == 80
    assert values["prefix_cache_hits_total"] == 32
    assert values["generation_tokens_total"] == 13
    assert (values["request_success_total[length]"], values["request_success_total[abort]"]) == (2, 1)
    assert values["engine_steps_total"] == 13
    assert values["engine_rows_total"] == (40 + 10) + (8 + 1)
    assert 0 < values["run_seconds_total"] < values["step_seconds_total"]


def test_gauges_show_the_present_load() -> None:
    engine = Engine(model(), max_context=CONTEXT, max_num_seqs=2)
    for name in "abc":
        engine.add_request(ask(name, [1] * 40))
    engine.step()
    registry = make_registry([EngineCollector(lambda: snapshot(engine.statistics, 5), NAME)])
    values = page(registry)
    assert (values["num_requests_running"], values["num_requests_waiting"]) == (2, 1 + 5)
    assert values["kv_cache_usage_perc"] == 4 / 8
    drain(engine)
    values = page_of(engine)
    assert (values["num_requests_running"], values["num_requests_waiting"], values["kv_cache_usage_perc"]) == (0, 0, 0)


def test_accepted_drafts_by_position_b111_b116() -> None:
    request = ask("r")
    answers = {key: told.token_ids for key, told in run_plain(model(), request, max_context=CONTEXT).items()}
    engine = drafting(oracle_chain(answers, 4))
    run(engine, [request])
    values = page_of(engine)
    # 11 tokens: one by the prompt, then two steps of four accepted and a bonus
    assert values["spec_decode_num_drafts_total"] == 2
    assert values["spec_decode_num_accepted_tokens_total"] == values["spec_decode_num_draft_tokens_total"] == 8
    assert values["spec_decode_num_emitted_tokens_total"] == 10
    by_position = [values[f"spec_decode_num_accepted_tokens_per_pos_total[{depth}]"] for depth in range(4)]
    assert by_position == [2, 2, 2, 2]


def test_a_position_that_never_stood_shows_zero() -> None:
    statistics = WorkerStatistics()
    statistics.observe_draft(TokenTree.chain([5, 6]), num_accepted=1, num_emitted=2)
    values = page(make_registry([EngineCollector(lambda: statistics, NAME)]))
    assert values["spec_decode_num_accepted_tokens_per_pos_total[0]"] == 1
    assert values["spec_decode_num_accepted_tokens_per_pos_total[1]"] == 0


def test_two_apps_have_nothing_in_common() -> None:
    one, two = WorkerStatistics(num_steps=1), WorkerStatistics(num_steps=2)
    registries = [
        make_registry([EngineCollector(lambda: one, NAME)]),
        make_registry([EngineCollector(lambda: two, NAME)]),
    ]
    assert [page(registry)["engine_steps_total"] for registry in registries] == [1, 2]


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert METRICS_TYPE.startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("used", [0, 3])
def test_no_pages_at_all_is_no_division(used: int) -> None:
    assert Statistics(num_used_pages=used).page_usage == 0.0


def test_engines_one_after_the_other_count_on() -> None:
    past = WorkerStatistics(num_steps=3, num_running=2, run_seconds=0.5, num_finished=Counter(stop=1), num_pages=8)
    now = WorkerStatistics(num_steps=4, num_running=1, run_seconds=0.25, num_finished=Counter(stop=2, abort=1))
    both = after(past, now)
    assert (both.num_steps, both.run_seconds, both.num_finished) == (7, 0.75, Counter(stop=3, abort=1))
    assert (both.num_running, both.num_pages) == (1, 0)


def test_models_share_families() -> None:
    statistics = [WorkerStatistics(num_steps=number) for number in (3, 4)]
    registry = make_registry([EngineCollector(lambda each=each: each, f"m{each.num_steps}") for each in statistics])  # type: ignore[misc]
    text = metrics_text(registry).decode()
    assert text.count("# TYPE offramp:engine_steps_total counter") == 1
    steps = {
        f"m{number}": registry.get_sample_value("offramp:engine_steps_total", {"model_name": f"m{number}"})
        for number in (3, 4)
    }
    assert steps == {"m3": 3, "m4": 4}
