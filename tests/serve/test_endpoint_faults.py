"""Endpoints that answer what they should not: the client hears of it, whole events alone reach it, nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from offramp.errors import InvalidRequestError, ResourceError
from offramp.serve.app import make_app
from offramp.serve.relay_events import WholeEvents
from offramp.serve.settings import ServerSettings
from tests.serve.asking import COMPLETIONS, chunks_of
from tests.serve.piping import GREEDY, UNSURE, Endpoint, PipeApi, elsewhere, good, piping, series

RESPONSES = "/v1/responses"
EVENTS = {"content-type": "text/event-stream"}
ASKED = {**GREEDY, "prompt": UNSURE}


async def coming(*parts: bytes | Exception) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield part


async def never() -> AsyncIterator[bytes]:
    await asyncio.sleep(60)
    yield b""


def zipped() -> httpx2.Response:
    return httpx2.Response(200, content=coming(b"no such thing"), headers={**EVENTS, "content-encoding": "gzip"})


@contextmanager
def asking(answer: httpx2.Response, **options: Any) -> Iterator[PipeApi]:
    with piping(elsewhere(**options), endpoint=Endpoint(answer), with_big=False) as api:
        yield api


def failed(api: PipeApi) -> bool:
    """It counts as the endpoint's failure, not as an answer of anybody's."""
    return series(api, "pipeline_failures_total") == [1] and sum(series(api, "pipeline_requests_total")) == 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"choices": [{"text": "x", "finish_reason": NaN}]}', "no JSON that can be passed on"),
        (b'{"choices": [{"text": "x", "p": 1e999}]}', "no JSON that can be passed on"),
        (b'{"choices": [{"text": "\\ud800"}]}', "no JSON that can be passed on"),
        (b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "no JSON object"),
        (b'{"error": {"message": "over\\nquota", "code": 402}}', "an error: over quota"),
        (b'{"error": {"message": "\\ud800"}}', "an error: ?"),
        (b'{"error": 5}', "no choices"),
        (b"{}", "no choices"),
        (b'{"choices": []}', "no choices"),
        (b'{"choices": "hello"}', "no choices"),
        (b"[]", "no JSON object"),
        (b"", "no JSON object"),
    ],
)
def test_an_answer_that_is_none_is_the_endpoints_failure(body: bytes, why: str) -> None:
    with asking(httpx2.Response(200, content=body)) as api:
        error = api.refusal(COMPLETIONS, ASKED, 503)
        assert error["code"] == "endpoint_failed"
        assert why in error["message"]
        assert failed(api)


def test_bytes_that_are_not_what_they_are_called_are_the_endpoints_failure() -> None:
    for stream in (False, True):
        with asking(zipped()) as api:
            assert api.refusal(COMPLETIONS, {**ASKED, "stream": stream}, 503)["code"] == "endpoint_failed"
            assert failed(api)


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, json={"choices": [{"text": "whole"}]}),
        httpx2.Response(200, text="<html>", headers={"content-type": "text/html"}),
        httpx2.Response(200, content=b"", headers=EVENTS),
        httpx2.Response(200, content=b'data: {"cho', headers=EVENTS),
    ],
)
def test_a_stream_that_is_none_has_a_status(answer: httpx2.Response) -> None:
    with asking(answer) as api:
        assert api.refusal(COMPLETIONS, {**ASKED, "stream": True}, 503)["code"] == "endpoint_failed"
        assert failed(api)


@pytest.mark.parametrize("end", [(), (b'data: {"cho',), (b'data: {"cho', httpx2.ReadError("gone"))])
def test_half_a_stream_ends_with_an_error_behind_whole_events(end: tuple[bytes | Exception, ...]) -> None:
    parts = coming(b'data: {"choices"', b": [1]}\n", b"\n", *end)
    with asking(httpx2.Response(200, content=parts, headers=EVENTS)) as api:
        first, last = chunks_of(api.post(COMPLETIONS, {**ASKED, "stream": True}).text)
        assert first == {"choices": [1]}
        assert last["error"]["code"] == "endpoint_failed"
        assert failed(api)


def test_a_stream_is_over_with_its_last_event() -> None:
    async def hanging() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [1]}\n\ndata: [DONE]\n\n'
        await asyncio.sleep(60)

    kind = {"content-type": "Text/Event-Stream; charset=utf-8"}
    with asking(httpx2.Response(200, content=hanging(), headers=kind), timeout=5) as api:
        assert chunks_of(api.post(COMPLETIONS, {**ASKED, "stream": True}).text) == [{"choices": [1]}]
        assert series(api, "pipeline_failures_total") == [0]
        assert series(api, "pipeline_requests_total", answered_by="big") == [1]


def test_an_error_within_a_stream_is_passed_on_and_counted() -> None:
    events = [{"choices": [1]}, {"error": {"message": "out of memory"}}]
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
    with asking(httpx2.Response(200, content=data, headers=EVENTS)) as api:
        assert chunks_of(api.post(COMPLETIONS, {**ASKED, "stream": True}).text) == events
        assert failed(api)
        assert sum(series(api, "http_requests_total", route=COMPLETIONS, status="503")) == 1


def test_a_response_ends_with_its_last_event() -> None:
    body = {"model": "smart", "temperature": 0, "max_output_tokens": 8, "input": UNSURE, "stream": True}
    last = b'event: response.completed\ndata: {"type": "response.completed", "response": {}}\n\n'
    for name, failures in ((b"completed", 0), (b"incomplete", 0), (b"failed", 1), (b"created", 1)):
        data = last.replace(b"completed", name)
        with asking(httpx2.Response(200, content=data, headers=EVENTS)) as api:
            assert api.post(RESPONSES, body).text.startswith(data.decode())
            assert series(api, "pipeline_failures_total") == [failures]
            assert sum(series(api, "pipeline_requests_total")) == 1 - failures


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_are_whole_however_they_are_cut(blank: bytes) -> None:
    whole = [b"data: 1" + blank, b": still here" + blank, b"data: [DONE]" + blank]
    for size in (1, 2, 3, 7, 100):
        data, events, given = b"".join(whole), WholeEvents(), b""
        for start in range(0, len(data), size):
            assert not events.ended
            given += events.take(data[start : start + size])
            assert given in (b"", whole[0], whole[0] + whole[1], data)
        assert (given, events.ended, events.failed, events.end()) == (data, True, False, b"")


def test_a_last_event_without_its_blank_line_counts() -> None:
    for rest, given in ((b"data: [DONE]", b"data: [DONE]\n\n"), (b"data: 1\n", b"")):
        events = WholeEvents()
        assert events.take(rest) == b""
        assert events.end() == given
        assert events.ended == bool(given)


def test_text_about_the_end_is_not_the_end() -> None:
    events = WholeEvents()
    events.take(b'data: {"choices": [{"text": "data: [DONE]"}]}\n\ndata: {"text": "{\\"error\\": {}}"}\n\n')
    assert not events.ended
    assert not events.failed


@pytest.mark.parametrize(
    ("told", "tries", "retry_after"),
    [("60", 1, range(60, 61)), ("7", 3, range(7, 8)), ("in a while", 3, range(5, 6)), (None, 1, range(3000, 3601))],
)
def test_an_endpoint_is_left_alone_for_as_long_as_it_asks(told: str | None, tries: int, retry_after: range) -> None:
    told = told or format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    endpoint = Endpoint(httpx2.Response(429, headers={"retry-after": told}))
    with piping(elsewhere(), endpoint=endpoint) as api:
        response = api.post(COMPLETIONS, ASKED)
        assert response.status_code == 503
        assert len(endpoint.requests) == tries
        assert int(response.headers["retry-after"]) in retry_after


@pytest.mark.parametrize("answer", [httpx2.Response(500), httpx2.ConnectError("refused")])
def test_a_budget_counts_every_try(answer: httpx2.Response | Exception) -> None:
    endpoint = Endpoint(answer)
    with piping(elsewhere(budget_calls=2), endpoint=endpoint) as api:
        api.refusal(COMPLETIONS, ASKED, 503)
        assert len(endpoint.requests) == 2
        assert series(api, "pipeline_budget_calls_left") == [0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_elsewhere_has_the_time_of_the_request(stream: bool) -> None:
    with asking(httpx2.Response(200, content=never(), headers=EVENTS)) as api:
        api.app = make_app(api.models, ServerSettings(request_seconds=0.5), api.pipelines)
        assert api.refusal(COMPLETIONS, {**ASKED, "stream": stream}, 408)["code"] == "request_timeout"


def test_a_stream_from_elsewhere_ends_with_the_time_of_the_request() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b'data: {"choices": []}\n\n'
        await asyncio.sleep(60)

    with asking(httpx2.Response(200, content=slowly(), headers=EVENTS)) as api:
        api.app = make_app(api.models, ServerSettings(request_seconds=0.5), api.pipelines)
        last = chunks_of(api.post(COMPLETIONS, {**ASKED, "stream": True}).text)[-1]
        assert last["error"]["code"] == "request_timeout"
        assert series(api, "pipeline_failures_total") == [0]


def test_no_report_is_no_report_of_a_model_elsewhere_either() -> None:
    with asking(good()) as api:
        answer = api.answer(COMPLETIONS, **ASKED, offramp={"report": "none"})
        assert (answer["choices"][0]["text"], answer["model"]) == ("far", "smart")
        assert "offramp" not in answer


@pytest.mark.parametrize("key", ["sesame\n", "ses ame", "sésame"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", key)
    with pytest.raises(InvalidRequestError, match="BIG_KEY holds no key") as caught, asking(good(), key_env="BIG_KEY"):
        pass
    assert "same" not in caught.value.message + caught.value.hint


def test_an_endpoint_that_takes_too_long_is_refused_at_the_start() -> None:
    with (
        asking(httpx2.Response(200, content=never()), timeout=0.1) as api,
        pytest.raises(ResourceError, match=r"no whole answer in 0\.1 s"),
    ):
        api.pipelines.check()
