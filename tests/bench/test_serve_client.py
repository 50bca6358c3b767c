"""One client: what it sends, what it makes of streams, and the times it keeps by a clock that the test sets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from offramp.bench.serve import client as client_module
from offramp.bench.serve.chunks import LONGEST_EVENT, EventLines, StreamError, read_chunk
from offramp.bench.serve.client import Client
from offramp.bench.serve.prompts import Prompt
from offramp.bench.serve.sample import Sample
from offramp.bench.serve.target import Target, check_extra, server_base
from offramp.errors import InvalidRequestError
from tests.bench.fake_server import DONE, Answer, FakeServer, event, refusal, text_chunk, usage_chunk

PROMPT = Prompt("hello", 8)
HTTP = "http:" + "//"


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Stream(httpx2.AsyncByteStream):
    """Bytes that come at set times."""

    def __init__(self, clock: Clock, parts: Sequence[tuple[float, bytes]]) -> None:
        self._clock = clock
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for seconds, data in self._parts:
            self._clock.now = 50.0 + seconds
            yield data


def timed(*parts: tuple[float, bytes]) -> Sample:
    """What a client makes of these bytes, sent 50 seconds after nothing."""
    clock = Clock()

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Stream(clock, parts))

    async def ask() -> Sample:
        async with Client(transport=httpx2.MockTransport(handle), clock=clock) as client:
            return await client.ask(Target(base="http://localhost", model="m", endpoint="completions"), PROMPT)

    return asyncio.run(ask())


def asked(server: FakeServer, target: Target | None = None, prompt: Prompt = PROMPT, key: str | None = None) -> Sample:
    """What a client makes of a real connection."""

    async def ask() -> Sample:
        async with Client(api_key=key) as client:
            return await client.ask(target or Target(base=server.base, model="m", endpoint="completions"), prompt)

    return asyncio.run(ask())


def answered(answer: Answer) -> Sample:
    with FakeServer(lambda body: answer) as server:
        return asked(server)


def test_times_are_those_of_chunks_with_text() -> None:
    sample = timed(
        (0.5, text_chunk("")),  # a character or a stop string is open: nothing to see yet
        (1.0, text_chunk("a")),
        (1.25, text_chunk("bcd")),
        (2.25, text_chunk("e")),
        (2.5, text_chunk("", "length")),
        (3.0, usage_chunk(7, 6) + DONE),
        (9.0, b""),
    )
    assert sample == Sample(start=50.0, end=52.25, chunk_times=(51.0, 51.25, 52.25), prompt_tokens=7, output_tokens=6)
    assert (sample.first_token_seconds, sample.gaps) == (1.0, [0.25, 1.0])
    assert sample.seconds_per_token == 1.25 / 5


def test_without_usage_chunks_are_counted() -> None:
    sample = timed((1.0, text_chunk("a")), (2.0, text_chunk("b", "stop") + DONE))
    assert (sample.prompt_tokens, sample.output_tokens, sample.error) == (None, 2, "")


def test_an_answer_that_ends_at_once_has_its_first_token_then() -> None:
    sample = timed((1.5, text_chunk("", "stop")), (2.0, usage_chunk(3, 1) + DONE))
    assert (sample.first_token_seconds, sample.gaps, sample.output_tokens) == (1.5, [], 1)
    assert sample.seconds_per_token is None


def test_events_may_be_cut_anywhere() -> None:
    data = text_chunk("é") + b": a comment\r\n\r\nevent: x\r\nid: 3\r\n" + text_chunk("b", "stop") + DONE
    whole = list(EventLines().feed(data))
    lines = EventLines()
    assert [each for at in range(len(data)) for each in lines.feed(data[at : at + 1])] == whole
    assert len(whole) == 3


@pytest.mark.parametrize(
    ("chunk", "has_text", "reason"),
    [
        ({"choices": [{"delta": {"content": "x"}}]}, True, None),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False, None),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, True, None),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, False, "stop"),
        ({"choices": [{"delta": None, "text": None}]}, False, None),
        ({"choices": ["x", 3]}, False, None),
        ({"choices": None, "usage": [1]}, False, None),
        ({"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": True}}, False, None),
    ],
)
def test_chunks_of_all_kinds(chunk: object, has_text: bool, reason: str | None) -> None:
    read = read_chunk(json.dumps(chunk).encode())
    assert (read.has_text, read.finish_reason, read.prompt_tokens, read.output_tokens) == (has_text, reason, None, None)


def test_a_line_without_end_is_given_up() -> None:
    lines = EventLines()
    assert list(lines.feed(b"x" * LONGEST_EVENT)) == []
    with pytest.raises(StreamError, match="bad stream"):
        list(lines.feed(b"x"))


@pytest.mark.parametrize(
    ("answer", "error", "detail"),
    [
        (refusal(429, "too many requests"), "HTTP 429", "too many requests"),
        (Answer([b"<html>oops"], 502, "text/html"), "HTTP 502", "<html>oops"),
        (Answer([], 500), "HTTP 500", ""),
        (Answer([b"{}"], 200, "application/json"), "bad stream", "application/json"),
        (Answer([text_chunk("a"), b"data: {oops\n\n"]), "bad stream", "not JSON: {oops"),
        (Answer([b"data: [1]\n\n"]), "bad stream", "not an object"),
        (Answer([text_chunk("a"), event({"error": {"message": "it broke"}})]), "error in stream", "it broke"),
        (Answer([b'error: {"message": "it broke"}\n\n']), "error in stream", "it broke"),
        (Answer([text_chunk("a", "error"), DONE]), "error in stream", "finish reason error"),
        (Answer([text_chunk("a"), DONE]), "ended early", "finish reason"),
        (Answer([]), "ended early", ""),
        (Answer([text_chunk("a"), 0.01, text_chunk("b")], complete=False), "disconnected", ""),
    ],
)
def test_errors_have_names(answer: Answer, error: str, detail: str) -> None:
    sample = answered(answer)
    assert sample.error == error
    assert detail in sample.detail
    assert (sample.chunk_times, sample.output_tokens) == ((), 0)


def test_nobody_there() -> None:
    with FakeServer(lambda body: Answer()) as server:
        pass
    assert asked(server).error == "can't connect"


def test_a_connection_that_breaks_after_all_was_said_is_an_answer() -> None:
    sample = answered(Answer([text_chunk("a", "stop"), DONE, 0.01], complete=False))
    assert (sample.error, sample.output_tokens) == ("", 1)


def test_what_is_sent() -> None:
    with FakeServer(lambda body: Answer([text_chunk("a", "stop"), DONE])) as server:
        target = Target(base=server.base, model="m", endpoint="completions", extra={"top_k": 3})
        assert asked(server, target, Prompt("h\ud800", 9)).error == ""
        chat = Target(base=server.base, model="m", endpoint="chat", temperature=0.5, ignore_eos=True)
        assert asked(server, chat, Prompt([{"role": "user", "content": "hi"}], 4)).error == ""
    shared = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    assert server.bodies == [
        {"path": "/v1/completions", "prompt": "h\ud800", "max_tokens": 9, "temperature": 0.0, "top_k": 3, **shared},
        {
            "path": "/v1/chat/completions",
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 4,
            "temperature": 0.5,
            "ignore_eos": True,
            **shared,
        },
    ]
    assert not any("authorization" in head.lower() for head in server.headers)


def test_a_key_is_sent_and_never_shown() -> None:
    with FakeServer(lambda body: refusal(401, "wrong key sk-12345: sk-12345 is not known")) as server:
        sample = asked(server, key="sk-12345")
    assert "authorization: bearer sk-12345\r\n" in server.headers[0].lower()
    assert sample.detail == "wrong key [key]: [key] is not known"


def test_pages() -> None:
    async def pages(base: str) -> list[bytes | None]:
        async with Client() as client:
            return [await client.page(f"{base}/{name}") for name in ("metrics", "nothing")]

    with FakeServer(lambda body: Answer(), pages={"/metrics": [b"x 1\n"]}) as server:
        assert asyncio.run(pages(server.base)) == [b"x 1\n", None]
    assert asyncio.run(pages(server.base)) == [None, None]


def test_a_page_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trickle(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.005)
                yield b"#"

    async def page() -> bytes | None:
        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Trickle()))
        async with Client(transport=transport) as client:
            return await client.page(HTTP + "localhost/metrics")

    monkeypatch.setattr(client_module, "PAGE_SECONDS", 0.05)
    assert asyncio.run(page()) is None


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("localhost:8000/v1/", "localhost:8000"),
        ("[::1]:80/", "[::1]:80"),
        ("127.8.8.8/proxy/v1", "127.8.8.8/proxy"),
    ],
)
def test_addresses_of_this_machine(address: str, base: str) -> None:
    assert server_base(HTTP + address, allow_remote=False) == HTTP + base


@pytest.mark.parametrize("address", ["10.0.0.1", "models.example:80", "localhost.example", "0.0.0.0:1", "2130706433"])
def test_other_machines_need_consent(address: str) -> None:
    with pytest.raises(InvalidRequestError, match="not this machine"):
        server_base(HTTP + address, allow_remote=False)
    assert server_base(HTTP + address, allow_remote=True) == HTTP + address


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://localhost", HTTP, HTTP + "localhost:x", HTTP + "localhost?a=b", HTTP + "[::1"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="--base-url"):
        server_base(url, allow_remote=True)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequestError, match="password") as caught:
        server_base(HTTP + "me:secret@localhost", allow_remote=True)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("extra", [[], 3, {"stream": False}, {"n": 2}])
def test_extra_fields_that_would_break_the_measurement(extra: object) -> None:
    with pytest.raises(InvalidRequestError, match="--extra-body"):
        check_extra(extra)
