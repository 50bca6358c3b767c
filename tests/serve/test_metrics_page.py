"""`/metrics` of a running server: right at every moment, and what a load generator measures from outside."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.bench.serve.client import Client
from offramp.bench.serve.load import Load
from offramp.bench.serve.prompts import Prompt
from offramp.bench.serve.run import Pace, first_model, measure
from offramp.bench.serve.summary import Fields
from offramp.bench.serve.target import Target
from offramp.llm.serving import Serving
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, listening, messages, served

GONE = "http_requests_total,route=/v1/completions,status=499"
GREEDY: dict[str, object] = {"temperature": 0, "ignore_eos": True}


@pytest.fixture
def api() -> Iterator[Api]:
    """Text that never ends by itself."""
    script = mixing(chat_tokenizer().vocab_size, first=3)
    with served(scripted_model(script, num_pages=64), Serving(draft="off", max_num_seqs=4)) as running:
        yield running


def page(api: Api) -> dict[str, float]:
    """Series -> value, the model's label left out."""
    response = api.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = [f"{name}={value}" for name, value in sample.labels.items() if name not in ("model_name", "le")]
            found[",".join([sample.name.removeprefix("offramp:"), *labels])] = sample.value
    assert all(math.isfinite(value) for value in found.values())
    return found


def test_a_fresh_server_shows_zeros_b113(api: Api) -> None:
    values = page(api)
    assert (values.pop("model_loaded"), values.pop("model_loads_total")) == (1, 1)
    assert {value for name, value in values.items() if not name.endswith("_created")} == {0.0}
    assert "spec_decode_num_accepted_tokens_total" in values


def test_a_run_without_any_draft_has_no_nan_b113(api: Api) -> None:
    api.answer(COMPLETIONS, prompt="ab", max_tokens=9, temperature=0, offramp={"max_draft": 0})
    values = page(api)
    assert values["spec_decode_num_drafts_total"] == values["spec_decode_num_accepted_tokens_total"] == 0
    assert values["generation_tokens_total"] == 9


def test_a_models_card_has_a_route_of_its_own(api: Api) -> None:
    assert api.get("/v1/models/toy").status_code == 200
    assert api.get("/v1/models/another/one").status_code == 404
    assert api.get("/v1/nothing").status_code == 404
    values = page(api)
    counted = {name: value for name, value in values.items() if name.startswith("http_requests_total")}
    assert counted == {
        "http_requests_total,route=/v1/models/{model},status=200": 1,
        "http_requests_total,route=/v1/models/{model},status=404": 1,
        "http_requests_total,route=other,status=404": 1,
    }


def test_numbers_are_those_that_clients_were_told(api: Api) -> None:
    answers = [
        api.answer(COMPLETIONS, prompt="hello", max_tokens=1, **GREEDY),
        api.answer(CHAT, messages=messages(), max_tokens=7, n=2, **GREEDY),
    ]
    streamed = api.stream(COMPLETIONS, prompt="ab", max_tokens=6, stream_options={"include_usage": True}, **GREEDY)
    api.refusal(COMPLETIONS, {"prompt": "x", "stop": ""})
    usages = [answer["usage"] for answer in answers] + [streamed[-1]["usage"]]
    values = page(api)
    assert values["generation_tokens_total"] == sum(usage["completion_tokens"] for usage in usages) == 1 + 14 + 6
    assert values["request_success_total,finished_reason=length"] == 4
    assert values["time_to_first_token_seconds_count"] == values["request_queue_time_seconds_count"] == 3
    assert values["request_queue_time_seconds_sum"] < values["time_to_first_token_seconds_sum"]
    assert values["inter_token_latency_seconds_count"] == 2 * 6 + 5
    assert values["time_per_output_token_seconds_count"] == 3
    assert values["e2e_request_latency_seconds_count"] == 3
    assert values["http_requests_total,route=/v1/completions,status=200"] == 2
    assert values["http_requests_total,route=/v1/completions,status=400"] == 1


def load_on(base: str, num_prompts: int, pace: Pace, output_len: int) -> tuple[Load, Fields]:
    async def run() -> tuple[Load, Fields]:
        async with Client() as client:
            target = Target(base=base, model=await first_model(client, base), endpoint="completions")
            return await measure(client, target, [Prompt(f"{n} hello", output_len) for n in range(num_prompts)], pace)

    return asyncio.run(run())


def test_a_load_from_outside_measures_the_same(api: Api) -> None:
    with listening(api.app) as base:
        load, fields = load_on(base, 10, Pace(max_concurrency=6), output_len=12)
    values = page(api)
    assert (fields["completed"], fields["error_counts"], load.max_in_flight) == (10, {}, 6)
    assert values["generation_tokens_total"] == fields["total_output_tokens"] == 120
    assert values["prompt_tokens_total"] == fields["total_input_tokens"]
    assert values["http_requests_total,route=/v1/completions,status=200"] == 10
    mean = fields["mean_ttft_ms"]
    assert isinstance(mean, float)
    assert values["time_to_first_token_seconds_sum"] / 10 < mean / 1000, "the client's clock runs longer"


def test_clients_that_leave_are_seen_to_leave_b104(api: Api) -> None:
    with listening(api.app) as base:
        load, _ = load_on(base, 3, Pace(duration_limit=0.15), output_len=1900)
        assert (load.num_cut, load.ended_by) == (3, "duration limit")
        end = time.monotonic() + 10
        while (values := page(api)).get(GONE, 0) < 3 or values["num_requests_running"]:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert values["num_requests_running"] == values["num_requests_waiting"] == values["kv_cache_usage_perc"] == 0
    assert 0 < values["request_success_total,finished_reason=abort"] <= 3  # some may leave before they are understood
    assert values["e2e_request_latency_seconds_count"] == 0
