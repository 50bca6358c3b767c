"""The official `openai` client, unchanged, against a server on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from offramp.llm.serving import Serving
from offramp.testing.models import chat_tokenizer, says, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import listening, served

QUESTION = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
ANSWER = "hello ABCDEFGHIJ \u4e16 world"
MESSAGES = [{"role": "user", "content": "hello"}]
KEY = "key-1"
VOCAB = chat_tokenizer().vocab_size


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with (
        served(scripted_model(says((QUESTION, ANSWER)), num_pages=64), Serving(draft="off"), api_keys=(KEY,)) as api,
        listening(api.app) as url,
    ):
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "offramp"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="toy", messages=MESSAGES, temperature=0)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert len(answer._request_id) == 32
    again = [*MESSAGES, answer.choices[0].message, {"role": "user", "content": "go on"}]
    assert client.chat.completions.create(model="toy", messages=again, max_tokens=1).choices


def test_streams(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="toy", messages=MESSAGES, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == len(chat_tokenizer().encode(ANSWER)) + 1


def test_the_stream_helper_gathers_the_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="toy", messages=MESSAGES, temperature=0, logprobs=True) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
    assert "".join(deltas) == ANSWER
    assert stream.get_final_completion().choices[0].message.content == ANSWER


def test_stop_and_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="toy", messages=MESSAGES, temperature=0, stop=["DEF"], logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].message.content == "hello ABC"
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert content[0].token == "hello"
    assert bytes(content[0].bytes) == b"hello"
    assert len(content[0].top_logprobs) == 2


def test_completions_with_extras(client: openai.OpenAI) -> None:
    options = {"top_k": 1, "ignore_eos": True, "min_tokens": 3, "offramp": {"report": "tokens"}}
    answer = client.completions.create(
        model="toy", prompt=["hello", [5, 6]], n=2, max_tokens=3, logprobs=1, echo=True, extra_body=options
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text.startswith("hello")
    assert answer.choices[0].logprobs.token_logprobs[0] is None
    assert len(answer.choices[0].logprobs.tokens) == 4
    assert [len(tokens) for tokens in answer.model_extra["offramp"]["tokens"]] == [3, 3, 3, 3]
    streamed = client.completions.create(model="toy", prompt="hello", max_tokens=3, stream=True, extra_body=options)
    assert [chunk.choices[0].finish_reason for chunk in streamed][-1] == "length"


def test_errors_have_the_clients_classes(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="toy", messages=MESSAGES, temperature=-1)
    assert refusal.value.param == "temperature"
    assert refusal.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as refusal:
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    assert refusal.value.code == "model_not_found"
    with (
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_a_stream_closed_early_gives_everything_back() -> None:
    with (
        served(scripted_model(mixing(VOCAB, first=3), num_pages=64)) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        stream = client.completions.create(
            model="toy", prompt="hello", max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
        )
        for _ in range(3):
            next(stream)
        stream.close()
        assert client.completions.create(model="toy", prompt="hello", max_tokens=2).usage.completion_tokens == 2
        while api.worker.statistics.num_used_pages:
            pass
        assert api.worker.statistics.num_finished["abort"] == 1


def test_many_at_once_get_their_own_answers() -> None:
    prompts = [f"number {index}" for index in range(12)]

    async def ask_all(url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            answers = [
                client.completions.create(model="toy", prompt=prompt, max_tokens=12, temperature=0)
                for prompt in prompts
            ]
            return [answer.choices[0].text for answer in await asyncio.gather(*answers)]

    with served(scripted_model(mixing(VOCAB, first=3), num_pages=64)) as api, listening(api.app) as url:
        together = asyncio.run(ask_all(url))
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            alone = [
                client.completions.create(model="toy", prompt=prompt, max_tokens=12, temperature=0).choices[0].text
                for prompt in prompts
            ]
    assert together == alone
