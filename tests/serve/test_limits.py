"""What one client may take: keys, bodies, places in the queue, time; and what happens when it goes away."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.types import Message

from offramp import InvalidRequestError
from offramp.llm.serving import Serving
from offramp.serve import body as body_module
from offramp.serve import site as site_module
from offramp.serve.request_log import REQUESTS
from offramp.serve.request_metrics import CLIENT_CLOSED
from offramp.serve.settings import ServerSettings
from offramp.serve.strict_json import parse_object
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, error_of, listening, messages, served
from tests.serve.reading import in_loop

VOCAB = chat_tokenizer().vocab_size
WELL = mixing(VOCAB, first=3)
LONG = {"prompt": "hello", "max_tokens": 100, "ignore_eos": True, "temperature": 0}


class Exchange:
    """One request at the ASGI level: what it sends when, and whether the client is still there, is the test's."""

    def __init__(self, api: Api, path: str, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
        scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http"}
        scope |= {"root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"}}
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": raw, "more_body": False})
        self.sent: list[Message] = []
        self._news = asyncio.Event()
        self.task = asyncio.create_task(api.app(scope, self._inbox.get, self._send))

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        self._news.set()

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def until(self, fits: Callable[[list[Message]], bool]) -> None:
        while not fits(self.sent):
            self._news.clear()
            await self._news.wait()

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def idle(api: Api) -> None:
    """Wait until nothing runs, and check that all pages are back."""
    while api.worker.statistics.num_running or api.worker.statistics.num_queued or api.worker.statistics.num_used_pages:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_a_client_that_goes_ends_its_request_within_a_step(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:  # B104
    gate = Gate()
    with served(gated_model(WELL, gate)) as api, caplog.at_level(logging.INFO, logger=REQUESTS.name):
        gate.close()
        exchange = Exchange(api, COMPLETIONS, {**LONG, "stream": stream, "n": 2})
        await gate.reached()
        await gate.turn()
        await gate.turn()
        exchange.leave()
        await asyncio.sleep(0.01)  # the loop hears of it
        steps = api.worker.statistics.num_steps
        gate.open()
        await exchange.task
        await idle(api)
        assert api.worker.statistics.num_steps <= steps + 2
        assert api.worker.statistics.num_finished["abort"] == 2
        if not stream:
            assert exchange.sent == []
    [record] = [record for record in caplog.records if hasattr(record, "request")]
    assert (record.request.status, record.request.reason) == (CLIENT_CLOSED, None)


@in_loop
async def test_nothing_is_begun_for_a_client_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies take turns: the second goes while it waits for its own."""
    begun, going_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def parse(body: bytes) -> dict[str, object]:
        values = parse_object(body)
        seen.append(values["prompt"])
        begun.set()
        assert going_on.wait(30)
        return values

    monkeypatch.setattr(site_module, "parse_object", parse)
    with served(scripted_model(WELL)) as api:
        rest = {"max_tokens": 1, "user": "u" * site_module.LARGE_BYTES}
        one, two, three = (Exchange(api, COMPLETIONS, {**rest, "prompt": prompt}) for prompt in "abc")
        await asyncio.to_thread(begun.wait, 30)
        two.leave()
        await asyncio.sleep(0.01)  # the loop hears of it
        going_on.set()
        await asyncio.gather(one.task, two.task, three.task)
        assert (one.status, two.status, three.status) == (200, None, 200)
    assert seen == ["a", "c"]


@in_loop
async def test_a_client_that_goes_before_its_first_token_is_forgotten() -> None:
    gate = Gate()
    with served(gated_model(WELL, gate)) as api:
        gate.close()
        exchange = Exchange(api, CHAT, {"messages": messages(), "stream": True})
        await gate.reached()
        exchange.leave()
        await asyncio.sleep(0.01)
        gate.open()
        await exchange.task
        await idle(api)
        assert exchange.sent == []


@in_loop
async def test_one_client_that_goes_leaves_others_alone() -> None:  # B106
    gate = Gate()
    with served(gated_model(WELL, gate)) as api:
        alone = Exchange(api, COMPLETIONS, LONG)
        await alone.task
        gate.close()
        stays, goes = Exchange(api, COMPLETIONS, LONG), Exchange(api, COMPLETIONS, {**LONG, "stream": True})
        await gate.reached()
        goes.leave()
        gate.open()
        await asyncio.gather(stays.task, goes.task)
        assert json.loads(stays.body)["choices"] == json.loads(alone.body)["choices"]
        await idle(api)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_turns", [1, 6])
@in_loop
async def test_time_that_is_up_is_told(num_turns: int, stream: bool) -> None:
    """After one step of one token there is no answer yet, and after six there is."""
    gate, now = Gate(), 0.0
    serving = Serving(draft="off", max_num_batched_tokens=1)
    with served(gated_model(WELL, gate), serving, clock=lambda: now, request_seconds=5) as api:
        gate.close()
        exchange = Exchange(api, COMPLETIONS, {**LONG, "prompt": [5, 6, 7], "stream": stream})
        await gate.reached()
        for _ in range(num_turns):
            await gate.turn()
        begun = stream and num_turns == 6
        if begun:
            await exchange.until(lambda sent: len(sent) > 1)
        now = 6.0
        gate.open()
        await exchange.task
        await idle(api)
    assert exchange.status == (200 if begun else 408)
    if begun:
        *_, error, done, end = exchange.body.split(b"\n\n")
        assert (done, end) == (b"data: [DONE]", b"")
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "request_timeout"
    else:
        assert json.loads(exchange.body)["error"]["code"] == "request_timeout"
        assert dict(exchange.sent[0]["headers"])[b"x-should-retry"] == b"false"


@in_loop
async def test_a_full_queue_sends_away() -> None:
    gate = Gate()
    with served(gated_model(WELL, gate), Serving(draft="off", max_num_seqs=1), max_queued=1) as api:
        gate.close()
        first = Exchange(api, COMPLETIONS, LONG)
        await gate.reached()
        second = Exchange(api, COMPLETIONS, LONG)
        while api.worker.statistics.num_queued < 1:
            await asyncio.sleep(0.001)
        third = Exchange(api, COMPLETIONS, {**LONG, "stream": True})
        await third.task
        assert third.status == 429
        assert json.loads(third.body)["error"]["code"] == "queue_full"
        assert int(dict(third.sent[0]["headers"])[b"retry-after"]) >= 1
        several = Exchange(api, COMPLETIONS, {**LONG, "prompt": ["a", "b"]})
        await several.task
        assert several.status == 429
        gate.open()
        await asyncio.gather(first.task, second.task)
        assert (first.status, second.status) == (200, 200)
        await idle(api)


def test_more_prompts_than_ever_find_room_are_refused() -> None:
    serving = Serving(draft="off", max_num_seqs=2)
    with served(scripted_model(WELL, num_pages=16), serving, max_queued=1) as api:
        assert api.answer(COMPLETIONS, prompt=["a", "b", "c"], max_tokens=1)["usage"]["completion_tokens"] == 3
        assert api.refusal(COMPLETIONS, {"prompt": ["a", "b", "c", "d"]})["param"] == "prompt"


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_a_server_that_stops_says_so(stream: bool) -> None:
    gate = Gate()
    with served(gated_model(WELL, gate)) as api:
        gate.close()
        exchange = Exchange(api, COMPLETIONS, {**LONG, "stream": stream})
        await gate.reached()
        await gate.turn()
        drain = asyncio.create_task(api.worker.drain(0.01))
        while True:
            late = Exchange(api, COMPLETIONS, LONG)
            await asyncio.wait([late.task], timeout=0.05)
            if late.task.done():
                break
        assert late.status == 503
        assert json.loads(late.body)["error"]["code"] == "server_stopping"
        gate.open()
        await asyncio.gather(exchange.task, drain)
        assert b'"server_stopping"' in exchange.body
        assert exchange.status == (200 if stream else 503)
        assert exchange.body.endswith(b"data: [DONE]\n\n") == stream


@pytest.fixture(scope="module")
def small() -> Any:
    with served(scripted_model(WELL, num_pages=16), max_body_bytes=2048, body_seconds=0.1) as api:
        yield api


def test_a_body_that_is_too_large(small: Api) -> None:
    fits = {"prompt": [5], "max_tokens": 1, "user": "u" * 1900}
    assert small.post(COMPLETIONS, fits).status_code == 200
    error = error_of(small.post(COMPLETIONS, {"prompt": "x" * 3000}), 413)
    assert error["code"] == "body_too_large"
    assert "2048" in error["message"]


def test_a_body_without_a_length_is_counted(small: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "DISCARDED_BYTES", 4096)
    num_sent = 0

    async def endless() -> Any:
        nonlocal num_sent
        while True:
            num_sent += 1
            yield b" " * 1024

    response = small.ask("POST", COMPLETIONS, content=endless(), headers={"content-type": "application/json"})
    assert error_of(response, 413)["code"] == "body_too_large"
    assert num_sent < 10


def test_a_body_that_does_not_come(small: Api) -> None:
    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(30)

    response = small.ask("POST", COMPLETIONS, content=slow(), headers={"content-type": "application/json"})
    assert error_of(response, 408)["code"] == "body_timeout"


def test_a_large_body_on_a_socket_gets_its_answer() -> None:
    model = scripted_model(WELL, num_pages=16)
    with (
        served(model, max_body_bytes=2048) as api,
        listening(api.app) as url,
        httpx2.Client(base_url=url, timeout=30) as client,
    ):
        response = client.post(COMPLETIONS, json={"prompt": "x" * 5_000_000})
        assert error_of(response, 413)["code"] == "body_too_large"
        headers = {"expect": "100-continue"}
        assert client.post(COMPLETIONS, json={"prompt": "x" * 3000}, headers=headers).status_code == 413


KEYS = ("alpha-key", "beta-key")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def locked() -> Any:
    with served(scripted_model(WELL, num_pages=16), api_keys=KEYS) as api:
        yield api


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/version", "/openapi.json", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [{}, bearer(""), bearer("alpha"), bearer("alpha-key2"), {"authorization": "Basic alpha-key"}, bearer("\u00e9")],
)
def test_without_a_key_nobody_comes_in(locked: Api, path: str, headers: dict[str, str]) -> None:
    raw = {name: value.encode() for name, value in headers.items()}
    response = locked.get(path, headers=raw)
    assert error_of(response, 401)["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_every_key_comes_in_and_health_needs_none(locked: Api) -> None:
    assert [locked.get("/v1/models", headers=bearer(key)).status_code for key in KEYS] == [200, 200]
    assert locked.get("/v1/models", headers={"authorization": "bearer alpha-key"}).status_code == 200
    assert locked.get("/health").status_code == 200


@pytest.mark.parametrize("isolate", [False, True])
def test_isolated_keys_share_no_cached_prompts(isolate: bool) -> None:
    body = {"prompt": [7] * 64, "max_tokens": 1}

    def cached(api: Api, key: str, **more: object) -> int:
        answer = api.post(COMPLETIONS, {**body, **more}, headers=bearer(key)).json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    with served(scripted_model(WELL, num_pages=64), api_keys=KEYS, isolate_keys=isolate) as api:
        assert cached(api, KEYS[0]) == 0
        assert cached(api, KEYS[0]) == 63
        assert cached(api, KEYS[1]) == (0 if isolate else 63)
        assert cached(api, KEYS[0], cache_salt="mine") == 0
        assert cached(api, KEYS[0], cache_salt="mine") == 63


def test_the_log_tells_neither_prompts_nor_keys(caplog: pytest.LogCaptureFixture) -> None:
    with served(scripted_model(WELL, num_pages=16), api_keys=KEYS) as api, caplog.at_level(logging.DEBUG):
        api.post(COMPLETIONS, {"prompt": "secret-prompt", "max_tokens": 2}, headers=bearer(KEYS[0]))
        api.post(COMPLETIONS, {"prompt": "secret-prompt", "max_tokens": 0}, headers=bearer(KEYS[0]))
        api.post(CHAT, {"prompt": "secret-prompt"}, headers=bearer("secret-key"))
        told = caplog.text + "".join(repr(vars(record)) for record in caplog.records)
    assert "/v1/completions" in told
    assert "secret" not in told
    assert "alpha" not in told


@pytest.mark.parametrize(
    "settings",
    [
        {"api_keys": ("",)},
        {"api_keys": ("two words",)},
        {"api_keys": ("caf\u00e9",)},
        {"isolate_keys": True},
        {"max_body_bytes": 10},
        {"request_seconds": 0},
        {"allowed_hosts": ("box.lan:80",)},
        {"drain_seconds": float("nan")},
        {"keep_alive_seconds": 0},
        {"max_queued": -1},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        ServerSettings(**settings)


def test_settings_do_not_show_keys() -> None:
    assert "alpha" not in repr(ServerSettings(api_keys=KEYS))
