"""The official `openai` client, unchanged, against a server on a socket."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from offramp.engine.engine import Engine
from offramp.llm.serving import Serving
from offramp.model.generation import GenerationDefaults
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer, loaded_model, says, scripted_model
from offramp.testing.scripted import ScriptedModel, mixing
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


def test_choices_seeds_and_their_streams(client: openai.OpenAI) -> None:
    options = {"temperature": 3.0, "n": 3, "seed": 11, "max_tokens": 8, "extra_body": {"ignore_eos": True}}
    answer = client.chat.completions.create(model="toy", messages=MESSAGES, **options)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert answer.model_extra["offramp"]["seed"] == 11
    again = client.chat.completions.create(model="toy", messages=MESSAGES, **options)
    assert [choice.message.content for choice in again.choices] == texts
    assert again.system_fingerprint == answer.system_fingerprint
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(model="toy", messages=MESSAGES, stream=True, **options):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts
    other = client.chat.completions.create(model="toy", messages=MESSAGES, **{**options, "seed": 12})
    assert [choice.message.content for choice in other.choices] != texts


def test_streamed_logprobs_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"model": "toy", "messages": MESSAGES, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**options).choices[0].logprobs.content
    streamed = []
    for chunk in client.chat.completions.create(**options, stream=True):
        if chunk.choices[0].logprobs is not None:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == whole


def test_a_completions_stream_with_stop_and_usage(client: openai.OpenAI) -> None:
    options = {"model": "toy", "prompt": QUESTION, "temperature": 0, "max_tokens": 40, "stop": [" world"]}
    whole = client.completions.create(**options)
    assert whole.choices[0].text == ANSWER.removesuffix(" world")
    assert whole.choices[0].finish_reason == "stop"
    *chunks, last = client.completions.create(**options, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert last.choices == []
    assert last.usage.completion_tokens == whole.usage.completion_tokens


def test_raw_responses_and_extra_headers(client: openai.OpenAI) -> None:
    response = client.chat.completions.with_raw_response.create(
        model="toy",
        messages=MESSAGES,
        max_completion_tokens=2,
        temperature=0,
        extra_headers={"x-title": "a chat front end"},
    )
    assert response.headers["x-request-id"] == response.parse()._request_id
    assert response.parse().usage.completion_tokens == 2


def test_a_host_that_is_not_served() -> None:
    with (
        served(scripted_model(mixing(VOCAB, first=3), num_pages=64), allowed_hosts=("localhost",)) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.PermissionDeniedError):
            client.models.list()
        assert client.with_options(default_headers={"host": "localhost"}).models.list().data


def test_a_full_queue_and_patience_that_ends() -> None:
    """One request runs and stands still: another is sent away, the first gives up by itself, and then all is well."""
    gate, options = Gate(), {"model": "toy", "prompt": "hello", "max_tokens": 3, "extra_body": {"ignore_eos": True}}
    with (
        served(gated_model(mixing(VOCAB, first=3), gate), Serving(draft="off", max_num_seqs=1), max_queued=0) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        gate.close()
        first = pool.submit(
            lambda: client.with_options(timeout=0.2).completions.create(**{**options, "max_tokens": 1900})
        )
        gate.wait_until_reached()
        with pytest.raises(openai.RateLimitError) as refusal:
            client.completions.create(**options)
        assert refusal.value.code == "queue_full"
        assert int(refusal.value.response.headers["retry-after"]) >= 1
        with pytest.raises(openai.APITimeoutError):
            first.result(30)
        gate.open()
        end = time.monotonic() + 10
        while api.worker.statistics.num_finished["abort"] == 0 and time.monotonic() < end:
            time.sleep(0.001)
        assert client.completions.create(**options).usage.completion_tokens == 3
        assert api.worker.statistics.num_finished["abort"] == 1


def test_time_that_is_up_is_not_retried() -> None:
    """The client retries 408 by itself unless it is told not to: such a request would take as long again."""
    with (
        served(scripted_model(mixing(VOCAB, first=3), num_pages=64), request_seconds=0.05) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=3) as client,
    ):
        with pytest.raises(openai.APIStatusError) as refusal:
            client.completions.create(model="toy", prompt="hello", max_tokens=1900, extra_body={"ignore_eos": True})
        assert (refusal.value.status_code, refusal.value.code) == (408, "request_timeout")
        with pytest.raises(openai.APIError) as error:
            list(
                client.completions.create(
                    model="toy", prompt="hello", max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
                )
            )
        assert error.value.code == "request_timeout"
        told = 'route="/v1/completions",status="408"} 2.0'
        end = time.monotonic() + 5
        while told not in api.get("/metrics").text and time.monotonic() < end:
            time.sleep(0.01)
        assert told in api.get("/metrics").text


def test_a_server_that_failed_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Engine) -> None:
        raise RuntimeError("broken on purpose")

    with (
        served(scripted_model(mixing(VOCAB, first=3), num_pages=16)) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        monkeypatch.setattr(Engine, "step", step)
        with pytest.raises(openai.InternalServerError) as failure:
            client.completions.create(model="toy", prompt="hello", max_tokens=3)
        assert failure.value.code == "engine_failed"
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


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


@pytest.mark.parametrize(("page", "language"), [("README.md", "py"), ("docs/server.md", "python")])
def test_examples_run_as_they_are_written(page: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    question = "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    [example] = [block for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if "openai" in block]
    script = ScriptedModel(says((question, ANSWER)), num_pages=64, vocab_size=VOCAB)
    model = loaded_model(script, generation=GenerationDefaults(do_sample=False))
    with served(model, served_names=("smollm2-135m",)) as api, listening(api.app) as url:
        names: dict[str, openai.OpenAI] = {}
        exec(example.replace("http://127.0.0.1:8000", url), names)
        names["client"].close()
    assert ANSWER in capsys.readouterr().out
