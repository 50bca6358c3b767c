"""A pipeline's big model behind somebody else's server: what it is asked, how it fails, what it costs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from offramp.collaborate.pipeline.spec import RemoteSpec
from offramp.errors import InvalidRequestError, ResourceError
from offramp.serve.relay import MOST_PARTS, RelayStream
from offramp.serve.remote import Remote
from offramp.serve.request_metrics import RequestMetrics
from offramp.serve.time_left import TimeLeft
from tests.serve.asking import COMPLETIONS, chunks_of, listening
from tests.serve.piping import GREEDY, SURE, UNSURE, Endpoint, certified, elsewhere, good, piping, said, series


def test_a_big_model_elsewhere_answers_what_it_is_asked() -> None:
    endpoint = Endpoint(good())
    with piping(elsewhere(), endpoint=endpoint, with_big=False) as api:
        assert said(api, SURE)[0] == "one"
        assert endpoint.requests == []
        text, told = said(api, UNSURE, offramp={"report": "summary"})
        assert (text, told["answered_by"], told["model"]) == ("far", "big", "huge")
        [request] = endpoint.requests
        assert str(request.url) == "http://127.0.0.1:9/v1/completions"
        assert json.loads(request.content) == {**GREEDY, "model": "huge", "prompt": UNSURE}


def test_a_stream_from_elsewhere_is_passed_on() -> None:
    events = [{"choices": [{"index": 0, "text": each, "finish_reason": None}]} for each in ("fa", "r")]
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(200, content=data))) as api:
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True})
        assert response.headers["x-offramp-answered-by"] == "huge"
        assert response.headers["content-type"].startswith("text/event-stream")
        assert chunks_of(response.text) == events


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "sesame")
    endpoint = Endpoint(good())
    with piping(elsewhere(key_env="BIG_KEY"), endpoint=endpoint) as api:
        said(api, UNSURE)
        assert endpoint.requests[0].headers["authorization"] == "Bearer sesame"
    monkeypatch.delenv("BIG_KEY")
    with pytest.raises(InvalidRequestError, match="BIG_KEY is not set"), piping(elsewhere(key_env="BIG_KEY")):
        pass


@pytest.mark.parametrize("first", [httpx2.Response(503), httpx2.Response(429), httpx2.ConnectError("refused")])
def test_what_fails_once_is_tried_again(first: httpx2.Response | Exception) -> None:
    endpoint = Endpoint(first, good())
    with piping(elsewhere(retries=1), endpoint=endpoint) as api:
        assert said(api, UNSURE)[0] == "far"
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("answer", "code", "tries"),
    [
        (httpx2.Response(500), "endpoint_failed", 3),
        (httpx2.Response(401), "endpoint_failed", 1),
        (httpx2.Response(302), "endpoint_failed", 1),
        (httpx2.ConnectError("refused"), "endpoint_unreachable", 3),
        (httpx2.ReadTimeout("slow"), "endpoint_timeout", 1),
        (httpx2.Response(200, text="hello"), "endpoint_failed", 1),
    ],
)
def test_an_endpoint_that_fails_is_no_silent_fall_back(
    answer: httpx2.Response | Exception, code: str, tries: int
) -> None:
    endpoint = Endpoint(answer)
    with piping(elsewhere(), endpoint=endpoint) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE}, 503)
        assert error["code"] == code
        assert len(endpoint.requests) == tries
        assert series(api, "pipeline_failures_total") == [1]
        assert said(api, SURE)[0] == "one"


def test_a_stream_that_fails_before_its_first_bytes_has_a_status() -> None:
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(500))) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True}, 503)
        assert error["code"] == "endpoint_failed"


async def first_of(end: Exception | None, closed: threading.Event) -> AsyncIterator[bytes]:
    """A piece, then a failure, or nothing more for long."""
    try:
        yield b'data: {"choices": []}\n\n'
        if end is not None:
            raise end
        await asyncio.sleep(60)
    finally:
        closed.set()


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    broken = httpx2.Response(200, content=first_of(httpx2.ReadError("gone"), threading.Event()))
    with piping(elsewhere(), endpoint=Endpoint(broken)) as api:
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True})
        first, last = chunks_of(response.text)
        assert first == {"choices": []}
        assert last["error"]["code"] == "endpoint_failed"
        assert "broke off" in last["error"]["message"]
        assert series(api, "pipeline_failures_total") == [1]
        assert sum(series(api, "http_requests_total", route=COMPLETIONS, status="503")) == 1
        assert series(api, "http_requests_total", route=COMPLETIONS, status="200") == []


def test_a_client_that_goes_takes_the_endpoints_stream_along() -> None:
    closed = threading.Event()
    slow = httpx2.Response(200, content=first_of(None, closed))
    with piping(elsewhere(), endpoint=Endpoint(slow)) as api, listening(api.app) as url:
        body = {**GREEDY, "prompt": UNSURE, "stream": True}
        with (
            httpx2.Client(trust_env=False) as client,
            client.stream("POST", f"{url}{COMPLETIONS}", json=body) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.iter_lines()  # kept: one that is dropped hangs up
            assert next(lines).startswith("data: ")
            assert not closed.is_set()
        assert closed.wait(10)
        assert series(api, "pipeline_failures_total") == [0]


async def without_end(asked: list[int]) -> AsyncIterator[bytes]:
    """One event after the other; counts them."""
    while True:
        asked.append(len(asked))
        yield b'data: {"choices": []}\n\n'
        await asyncio.sleep(0)


def test_a_stream_ends_when_its_time_is_up() -> None:
    answer = httpx2.Response(200, content=without_end([]))
    with piping(elsewhere(timeout=0.1), endpoint=Endpoint(answer)) as api:
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True})
        assert chunks_of(response.text)[-1]["error"]["code"] == "endpoint_timeout"


def test_an_endpoint_waits_for_a_client_who_reads_slowly() -> None:
    asked: list[int] = []
    remote = Remote(
        RemoteSpec(url="http://127.0.0.1:9/v1", model="huge"),
        transport=httpx2.MockTransport(Endpoint(httpx2.Response(200, content=without_end(asked)))),
    )

    async def read_one() -> None:
        trace = RequestMetrics(CollectorRegistry(), {"small": "lossless"}).arrived("r", COMPLETIONS)
        stream = RelayStream(remote, "/completions", {}, trace, TimeLeft(60.0, time.perf_counter()))
        stays = asyncio.Event()
        await stream.begin(Request({"type": "http"}, stays.wait))  # type: ignore[arg-type]
        for _ in range(20 * MOST_PARTS):
            await asyncio.sleep(0)

    asyncio.run(read_one())
    assert MOST_PARTS <= len(asked) <= MOST_PARTS + 2


def test_what_an_endpoint_refuses_is_told_in_its_words() -> None:
    refused = httpx2.Response(422, json={"error": {"message": "top_k is unknown here"}})
    with piping(elsewhere(), endpoint=Endpoint(refused)) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE}, 422)
        assert "top_k is unknown here" in error["message"]
        assert error["code"] == "endpoint_refused"


def test_a_spent_budget_leaves_the_little_model(tmp_path: Path) -> None:
    with piping(elsewhere(budget_calls=1), endpoint=Endpoint(good())) as api:
        assert said(api, UNSURE)[0] == "far"
        assert series(api, "pipeline_budget_calls_left") == [0]
        text, told = said(api, UNSURE)
        assert (text, told["answered_by"]) == ("one", "little")
        assert "budget" in told["reason"]


def test_a_spent_budget_never_breaks_a_promise(tmp_path: Path) -> None:
    certified(tmp_path)
    content = elsewhere({"risk": 0.1, "calibration": "cascade.json"}, budget_calls=0)
    with piping(content, folder=tmp_path, endpoint=Endpoint(good())) as api:
        assert said(api, SURE)[0] == "one"
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE})
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx2.ConnectError("refused"), "can't be reached: refused"),
        (httpx2.Response(401), "refuses the key"),
        (httpx2.Response(404), "/v1/models answers 404"),
        (httpx2.Response(302, headers={"location": "http://127.0.0.1:8/"}), "/v1/models answers 302"),
        (httpx2.Response(200, text="<html>"), "/v1/models answers no JSON object"),
        (httpx2.Response(200, json={"data": [{"id": "other"}, {"id": 7}]}), "has no model 'huge'"),
    ],
)
def test_an_endpoint_is_looked_at_before_anything_is_served(answer: httpx2.Response | Exception, message: str) -> None:
    with (
        piping(elsewhere(), endpoint=Endpoint(answer)) as api,
        pytest.raises(ResourceError, match=f"pipeline 'smart': .*{message}"),
    ):
        api.pipelines.check()


@pytest.mark.parametrize("body", [{"data": [{"id": "huge"}, {"id": 7}]}, {"models": []}])
def test_an_endpoint_that_has_the_model_or_lists_none_is_fine(body: dict[str, Any]) -> None:
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(200, json=body))) as api:
        api.pipelines.check()


def test_an_address_where_nobody_listens_is_refused_at_the_start() -> None:
    with piping(elsewhere(url="http://127.0.0.1:1/v1")) as api, pytest.raises(ResourceError, match="can't be reached"):
        api.pipelines.check()
