"""Large bodies: what can't fit is refused before its tokens are counted, and nobody else waits for the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx2
import pytest

from offramp.model.tokenizer import Tokenizer
from offramp.serve import site as site_module
from offramp.serve.fitting import LEAST_TOKEN_BYTES, most_bytes
from offramp.serve.strict_json import parse_object
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, messages, served
from tests.serve.gathering import Json
from tests.serve.reading import in_loop

CONTEXT = 64
WELL = mixing(chat_tokenizer().vocab_size, first=3)
MODEL = scripted_model(WELL, num_pages=64, max_context=CONTEXT)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(MODEL) as api:
        yield api


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are encoded from now on."""
    texts: list[str] = []
    encode = Tokenizer._encode

    def note(self: Tokenizer, text: str, parse_special: bool, within: bool = False) -> object:
        texts.append(text)
        return encode(self, text, parse_special, within)

    monkeypatch.setattr(Tokenizer, "_encode", note)
    return texts


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {"prompt": "x" * 2000}, "prompt"),
        (COMPLETIONS, {"prompt": "\u4e16" * 500}, "prompt"),  # bytes count
        (COMPLETIONS, {"prompt": [5] * 100}, "prompt"),
        (CHAT, {"messages": messages("x" * 2000)}, "messages"),
        (CHAT, {"messages": messages("x" * 400) * 3}, "messages"),
    ],
)
def test_what_can_not_fit_is_refused_without_counting_its_tokens(
    api: Api, encoded: list[str], path: str, body: Json, param: str
) -> None:
    error = api.refusal(path, body)
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert str(CONTEXT) in error["message"]
    assert encoded == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {"prompt": "ab" * CONTEXT}, "prompt"),
        (CHAT, {"messages": messages("ab" * CONTEXT)}, "messages"),
        ("/v1/responses", {"input": "ab" * CONTEXT}, "input"),
        ("/v1/responses", {"input": "a", "instructions": "ab" * CONTEXT}, "input"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_too_many_tokens_are_those_of_the_field_that_was_sent(
    api: Api, encoded: list[str], path: str, body: Json, param: str, stream: bool
) -> None:
    error = api.refusal(path, {**body, "stream": stream})
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert f"{CONTEXT}, its answer included" in error["message"]
    assert encoded


def test_the_first_prompt_that_does_not_fit_ends_it(api: Api, encoded: list[str]) -> None:
    error = api.refusal(COMPLETIONS, {"prompt": ["a", "b" * CONTEXT, *"cdef"]})
    assert error["code"] == "context_length_exceeded"
    assert f"{CONTEXT} tokens" in error["message"]
    assert encoded == ["a", "b" * CONTEXT]


def test_the_longest_text_that_fits_is_read(api: Api) -> None:
    """Of control tokens, the longest; one byte more than could ever fit is refused by its length."""
    token = "<|endoftext|>"
    assert chat_tokenizer().longest_token_len == len(token)
    assert most_bytes(MODEL) == CONTEXT * LEAST_TOKEN_BYTES
    usage = api.answer(COMPLETIONS, prompt=token * (CONTEXT - 1))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (CONTEXT - 1, 1)
    for text, told in ((token * CONTEXT, f"{CONTEXT} tokens"), (token * 100, "1300 bytes")):
        assert told in api.refusal(COMPLETIONS, {"prompt": text})["message"]


@in_loop
async def test_small_requests_pass_large_ones(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many large ones there are, they take turns with one thread."""
    going_on = threading.Event()
    lock, running, most = threading.Lock(), 0, 0

    def parse(body: bytes) -> dict[str, object]:
        nonlocal running, most
        if len(body) > site_module.LARGE_BYTES:
            with lock:
                running += 1
                most = max(most, running)
            assert going_on.wait(30)
            with lock:
                running -= 1
        return parse_object(body)

    monkeypatch.setattr(site_module, "parse_object", parse)
    transport = httpx2.ASGITransport(app=api.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        body = {"prompt": "a", "max_tokens": 1, "user": "u" * site_module.LARGE_BYTES}
        large = [asyncio.create_task(client.post(COMPLETIONS, json=body)) for _ in range(40)]
        try:
            small = await asyncio.wait_for(client.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}), 10)
        finally:
            going_on.set()
        answers = await asyncio.gather(*large)
    assert small.status_code == 200
    assert {answer.status_code for answer in answers} == {200}
    assert most == 1
