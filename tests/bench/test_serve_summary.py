"""The numbers of a load, against values worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offramp.bench.serve.counters import SpeculationCounts, read_counts
from offramp.bench.serve.load import Load
from offramp.bench.serve.report import report
from offramp.bench.serve.sample import Sample
from offramp.bench.serve.summary import summary

ONE = Sample(start=10.0, end=12.0, chunk_times=(10.5, 11.0, 12.0), prompt_tokens=6, output_tokens=7)
TWO = Sample(start=11.0, end=11.25, chunk_times=(11.25,), prompt_tokens=4, output_tokens=1)
FAILED = Sample(start=10.5, end=19.0, error="HTTP 429", detail="busy")
LOAD = Load(
    num_prompts=9, start=10.0, end=14.0, samples=[TWO, FAILED, ONE], num_sent=5, max_in_flight=3, ended_by="interrupt"
)
COUNTS = SpeculationCounts(10, 40, 25, {0: 9, 1: 8, 2: 5, 3: 3})


def test_every_number() -> None:
    assert summary(LOAD, COUNTS) == {
        "duration": 4.0,
        "completed": 2,
        "failed": 1,
        "cut_off": 2,
        "not_sent": 4,
        "ended_by": "interrupt",
        "error_counts": {"HTTP 429": 1},
        "total_input_tokens": 10,
        "total_output_tokens": 8,
        "request_throughput": 0.5,
        "output_throughput": 2.0,
        "total_token_throughput": 4.5,
        # second 0: one chunk of 7/3 tokens; second 1: 7/3 and the other request's 1; second 2: 7/3
        "max_output_tokens_per_s": pytest.approx(7 / 3 + 1),
        "max_concurrent_requests": 3,
        "mean_ttft_ms": 375.0,
        "median_ttft_ms": 375.0,
        "p99_ttft_ms": pytest.approx(250 + 0.99 * 250),
        "mean_tpot_ms": 250.0,
        "median_tpot_ms": 250.0,
        "p99_tpot_ms": 250.0,
        "mean_itl_ms": 750.0,
        "median_itl_ms": 750.0,
        "p99_itl_ms": pytest.approx(500 + 0.99 * 500),
        "mean_e2el_ms": 1125.0,
        "median_e2el_ms": 1125.0,
        "p99_e2el_ms": pytest.approx(250 + 0.99 * 1750),
        "spec_decode_acceptance_rate": 62.5,
        "spec_decode_acceptance_length": 3.5,
        "spec_decode_num_drafts": 10,
        "spec_decode_draft_tokens": 40,
        "spec_decode_accepted_tokens": 25,
        "spec_decode_per_position_acceptance_rates": [0.9, 0.8, 0.5, 0.3],
        "input_lens": [6, None, 4],
        "output_lens": [7, 0, 1],
        "ttfts": [0.5, None, 0.25],
        "itls": [[0.5, 1.0], [], []],
        "errors": ["", "HTTP 429: busy", ""],
        "start_times": [0.0, 0.5, 1.0],
    }


def test_the_acceptance_length_is_the_servers_own_where_it_tells_all_tokens() -> None:
    """An answer may end within a draft: then that step has no recovered or bonus token."""
    told = summary(LOAD, replace(COUNTS, emitted_tokens=33))
    assert told["spec_decode_acceptance_length"] == 3.3
    assert told | {"spec_decode_acceptance_length": 3.5} == summary(LOAD, COUNTS)


@pytest.mark.parametrize("counts", [None, SpeculationCounts(0, 0, 0), SpeculationCounts(0, 0, 0, {0: 0})])
def test_nothing_measured_is_null_and_no_division_b113(counts: SpeculationCounts | None) -> None:
    fields = summary(Load(num_prompts=3, start=1.0, end=1.0), counts)
    assert (fields["completed"], fields["not_sent"]) == (0, 3)
    assert {value for name, value in fields.items() if name.endswith(("_ms", "throughput", "_rate", "_length"))} == {
        None
    }
    json.dumps(fields, allow_nan=False)
    assert "Speculative" not in report(fields)


def test_input_tokens_that_the_server_did_not_tell_are_not_made_up() -> None:
    untold = Sample(start=0.0, end=1.0, chunk_times=(1.0,), output_tokens=1)
    fields = summary(Load(num_prompts=2, start=0.0, end=2.0, samples=[ONE, untold], num_sent=2), None)
    assert (fields["total_input_tokens"], fields["total_token_throughput"], fields["output_throughput"]) == (
        None,
        None,
        4,
    )


def test_the_page() -> None:
    lines = report(summary(LOAD, COUNTS)).splitlines()
    shown = dict(line.rsplit(None, 1) for line in lines if line[0] not in "=-" and not line.endswith(":"))
    assert shown["Answered requests:"] == "2"
    assert shown["Failed requests:"] == "1"
    assert shown["Requests cut off at the end:"] == "2"
    assert shown["Mean TTFT (ms):"] == "375.00"
    assert shown["P99 ITL (ms):"] == "995.00"
    assert shown["Acceptance rate (%):"] == "62.50"
    assert shown["Acceptance length:"] == "3.50"
    assert shown["  Position 3:"] == "30.00"
    assert shown["HTTP 429:"] == "1"
    assert {len(line) for line in lines if line[0] in "=-"} == {50}


def page(prefix: str, drafts: int, engines: int = 1) -> bytes:
    lines = ["# HELP x y"]
    for engine in range(engines):
        labels = f'model_name="m",engine="{engine}"'
        lines += [
            f"{prefix}spec_decode_num_drafts_total{{{labels}}} {drafts}.0",
            f"{prefix}spec_decode_num_draft_tokens_total{{{labels}}} {4 * drafts}.0",
            f"{prefix}spec_decode_num_accepted_tokens_total{{{labels}}} {2 * drafts}.0",
            f'{prefix}spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="1"}} {drafts // 2}.0',
            f'{prefix}spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="0"}} {drafts}.0',
            f"{prefix}generation_tokens_total{{{labels}}} 7.0",
        ]
    return "\n".join([*lines, ""]).encode()


def test_emitted_tokens_are_read_where_a_server_counts_them() -> None:
    def counts(emitted: int, drafts: int) -> SpeculationCounts:
        line = f'offramp:spec_decode_num_emitted_tokens_total{{model_name="m",engine="0"}} {emitted}.0\n'
        read = read_counts(page("offramp:", drafts) + line.encode())
        assert read is not None
        return read

    before, after = counts(28, 10), counts(85, 30)
    assert (before.emitted_tokens, after.emitted_tokens) == (28, 85)
    grown = after.since(before)
    assert grown is not None
    assert grown.emitted_tokens == 57
    assert before.since(replace(before, emitted_tokens=29)) is None, "a counter fell"
    untold = read_counts(page("vllm:", 30))
    assert untold is not None
    assert untold.emitted_tokens is None
    assert untold.since(untold) == SpeculationCounts(0, 0, 0, {0: 0, 1: 0})


@pytest.mark.parametrize("prefix", ["offramp:", "vllm:", "llamacpp:"])
def test_counters_of_servers_that_name_them_alike(prefix: str) -> None:
    before, after = read_counts(page(prefix, 10, engines=2)), read_counts(page(prefix, 30, engines=2))
    assert before == SpeculationCounts(20, 80, 40, {0: 20, 1: 10})
    assert after is not None
    assert before is not None
    assert after.since(before) == SpeculationCounts(40, 160, 80, {0: 40, 1: 20})
    assert before.since(after) is None, "a server that began anew"


def test_a_position_that_is_new() -> None:
    assert SpeculationCounts(2, 4, 3, {0: 2, 1: 1}).since(SpeculationCounts(1, 1, 1, {0: 1})) == SpeculationCounts(
        1, 3, 2, {0: 1, 1: 1}
    )


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"<html>nothing</html>",
        b"\xff\xfe",
        b"vllm:spec_decode_num_drafts_total 3\n",  # the others are missing
        page("other:", 3),
        page("vllm:", 3).replace(b'position="1"', b'position="x"'),
        page("vllm:", 3).replace(b" 12.0", b" NaN"),
        page("vllm:", 3).replace(b" 12.0", b" +Inf"),
        page("vllm:", 3).replace(b'position="1"', b'place="1"'),
    ],
)
def test_pages_without_such_counters(text: bytes | None) -> None:
    assert read_counts(text) is None
