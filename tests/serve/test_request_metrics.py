"""Histograms and log lines of requests, with a clock that the test sets."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from offramp.errors import InvalidRequestError, QueueFullError
from offramp.llm.output import Report
from offramp.serve.errors import failure_of
from offramp.serve.request_log import JsonLines, TextLines, log_to_stderr
from offramp.serve.request_metrics import CLIENT_CLOSED, RequestMetrics

MODEL = {"model_name": "m"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: Clock) -> RequestMetrics:
    return RequestMetrics(registry, {"m": "lossless"}, clock=clock)


def report(*reasons: str, drafted: int = 0, accepted: int = 0) -> Report:
    return Report(
        prompt_tokens=7,
        cached_tokens=0,
        output_tokens=5,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        tokens_per_second=None,
        finish_reasons=reasons,  # type: ignore[arg-type]
        mode="lossless",
        mean_exit_layer=1.0,
        exact_kv=True,
        draft="off",
        verifier="exact",
        num_drafts=0,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        num_emitted_tokens=accepted,
        num_draft_tokens_per_pos=(),
        num_accepted_tokens_per_pos=(),
    )


def observed(registry: CollectorRegistry, name: str) -> tuple[float | None, float | None]:
    """How many values a histogram has seen, and their sum."""
    return tuple(registry.get_sample_value(f"offramp:{name}_{part}", MODEL) for part in ("count", "sum"))  # type: ignore[return-value]


def test_all_histograms_are_there_from_the_start(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    names = [
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
    ]
    assert [observed(registry, name) for name in names] == [(0, 0)] * 5


def test_a_request_of_two_choices(registry: CollectorRegistry, metrics: RequestMetrics, clock: Clock) -> None:
    trace = metrics.arrived("r", "/v1/completions")
    for seconds, count, choice in [
        (0.5, 1, 0),  # first token
        (0.25, 1, 1),  # the other choice's first: no gap
        (0.25, 3, 0),  # gap 0.5, three tokens
        (0.5, 0, 1),  # no token, no gap
        (0.5, 1, 1),  # gap 1.25
        (0.5, 1, 0),  # gap 1.5
    ]:
        clock.now += seconds
        trace.tokens(count, choice, clock.now)
    clock.now += 0.25
    trace.finished(200, report("length", "stop"), started=100.125)
    assert observed(registry, "time_to_first_token_seconds") == (1, 0.5)
    assert observed(registry, "inter_token_latency_seconds") == (3, 0.5 + 1.25 + 1.5)
    assert observed(registry, "time_per_output_token_seconds") == (2, 2.0 / 4 + 1.25 / 1)
    assert observed(registry, "e2e_request_latency_seconds") == (1, 2.75)
    assert observed(registry, "request_queue_time_seconds") == (1, 0.125)


def test_only_the_first_end_counts(registry: CollectorRegistry, metrics: RequestMetrics) -> None:
    trace = metrics.arrived("r", "/v1/completions")
    trace.finished(200, report("stop"))
    trace.finished(500)
    assert observed(registry, "e2e_request_latency_seconds") == (1, 0)
    counted = [
        registry.get_sample_value(
            "offramp:http_requests_total", {**MODEL, "route": "/v1/completions", "status": status}
        )
        for status in ("200", "500")
    ]
    assert counted == [1, None]


@pytest.mark.parametrize(
    ("status", "told"), [(CLIENT_CLOSED, report("abort")), (200, report("stop", "error")), (429, None), (200, None)]
)
def test_what_was_not_answered_does_not_shorten_latencies(
    registry: CollectorRegistry, metrics: RequestMetrics, clock: Clock, status: int, told: Report | None
) -> None:
    trace = metrics.arrived("r", "/v1/chat/completions")
    trace.tokens(1, 0, clock.now)
    clock.now += 1
    trace.tokens(1, 0, clock.now)
    trace.finished(status, told)
    assert observed(registry, "e2e_request_latency_seconds") == (0, 0)
    assert observed(registry, "time_per_output_token_seconds") == (0, 0)
    labels = {**MODEL, "route": "/v1/chat/completions", "status": str(status)}
    assert registry.get_sample_value("offramp:http_requests_total", labels) == 1


def log_of(metrics: RequestMetrics, clock: Clock, log_format: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What stderr gets of an answered request, a refused one, a warning and some chatter."""
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    with log_to_stderr(log_format):  # type: ignore[arg-type]
        trace = metrics.arrived("cmpl-1", "/v1/completions")
        clock.now += 0.5
        trace.tokens(1, 0, clock.now)
        clock.now += 1
        trace.finished(200, report("stop", drafted=8, accepted=6))
        trace = metrics.arrived("cmpl-2\nx", "/v1/chat/completions")
        trace.failed(failure_of(QueueFullError("a secret", hint="wait")))
        trace.finished(429)
        full = replace(report("length"), mode="full", mode_reason="max_tokens=90 is above the calibration's 64")
        metrics.arrived("cmpl-3", "/v1/completions").finished(200, full)
        logging.getLogger("offramp.engine").warning("mind %s", "this\nline")
        logging.getLogger("uvicorn.error").error("oops")
        logging.getLogger("offramp.engine").info("chatter")
        logging.getLogger("uvicorn.access").info("GET /v1/models")
    return stderr.getvalue().splitlines()


def test_readable_lines(metrics: RequestMetrics, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = log_of(metrics, clock, "text", monkeypatch)
    assert all(datetime.fromisoformat(line.split()[0]).tzinfo is UTC for line in lines)
    assert [line.partition(" ")[2] for line in lines] == [
        "cmpl-1 /v1/completions 200, 7 prompt + 5 output tokens, first after 0.500 s, 1.500 s in all, stop, "
        "6 of 8 draft tokens accepted",
        "cmpl-2\\nx /v1/chat/completions 429, queue_full, 0.000 s in all",
        "cmpl-3 /v1/completions 200, 7 prompt + 5 output tokens, 0.000 s in all, length, "
        "mode full (max_tokens=90 is above the calibration's 64)",
        "warning: mind this\\nline",
        "error: oops",
    ]


def test_json_lines(metrics: RequestMetrics, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.loads(line) for line in log_of(metrics, clock, "json", monkeypatch)]
    for line in lines:
        assert line.pop("time").endswith("+00:00")
    assert lines[0] == {
        "level": "info",
        "event": "request",
        "id": "cmpl-1",
        "route": "/v1/completions",
        "status": 200,
        "prompt_tokens": 7,
        "output_tokens": 5,
        "first_token_seconds": 0.5,
        "seconds": 1.5,
        "finish_reasons": ["stop"],
        "drafted": 8,
        "accepted": 6,
        "reason": None,
        "mode": None,
        "mode_reason": None,
        "model": None,
    }
    assert (lines[1]["id"], lines[1]["status"], lines[1]["output_tokens"]) == ("cmpl-2\nx", 429, None)
    assert lines[1]["reason"] == "queue_full"
    assert (lines[2]["mode"], lines[2]["mode_reason"]) == ("full", "max_tokens=90 is above the calibration's 64")
    message = {"level": "warning", "event": "message", "logger": "offramp.engine", "message": "mind this\nline"}
    assert lines[3] == message
    assert len(lines) == 5


def test_a_failure_keeps_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by hand")
    except ZeroDivisionError as error:
        record = logging.LogRecord("offramp", logging.ERROR, "", 0, "it failed", (), (type(error), error, None))
    assert "ZeroDivisionError: by hand" in json.loads(JsonLines().format(record))["traceback"]
    assert TextLines().format(record).splitlines()[0].endswith("+00:00 error: it failed")
    assert "ZeroDivisionError: by hand" in TextLines().format(record)


def test_logging_is_put_back(metrics: RequestMetrics) -> None:
    log = logging.getLogger("offramp")
    before = log.handlers[:], log.level, log.propagate
    with log_to_stderr("json"):
        assert log.handlers != before[0]
    assert (log.handlers[:], log.level, log.propagate) == before


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="log_format"), log_to_stderr("xml"):  # type: ignore[arg-type]
        pass
