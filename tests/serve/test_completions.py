"""/v1/completions, /tokenize and /detokenize: prompts of every kind, echoes, and the legacy log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from offramp import LLM, SamplingParams
from offramp.llm.serving import Serving
from offramp.testing.models import TURN, chat_tokenizer, loaded_model, scripted_model
from offramp.testing.scripted import ScriptedModel, mixing
from tests.serve.asking import COMPLETIONS, Api, served

VOCAB = chat_tokenizer().vocab_size
WILD = mixing(VOCAB, first=3)
FIELDS = ["tokens", "token_logprobs", "top_logprobs", "text_offset"]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(WILD, num_pages=64, max_context=128)) as api:
        yield api


def ids(text: str) -> list[int]:
    return chat_tokenizer().encode(text)


def greedy(**body: object) -> dict[str, Any]:
    return {"temperature": 0, "max_tokens": 4, "ignore_eos": True, **body}


def texts(answer: dict[str, Any]) -> list[str]:
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return [choice["text"] for choice in answer["choices"]]


def by_index(chunks: list[dict[str, Any]]) -> dict[int, str]:
    whole: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole[choice["index"]] = whole.get(choice["index"], "") + choice["text"]
    return whole


def test_more_tokens_than_the_context_has_room_for_end_with_it(api: Api) -> None:
    answer = api.answer(COMPLETIONS, prompt="hello", max_tokens=5000, ignore_eos=True, temperature=0)
    assert answer["usage"]["total_tokens"] == 128
    assert answer["choices"][0]["finish_reason"] == "length"
    long = api.refusal(COMPLETIONS, {"prompt": "ab" * 500})
    assert "or raise --max-model-len" in long["message"]


def test_prompts_come_as_texts_or_ids_one_or_several(api: Api) -> None:
    one, two = "hello world", "a b c"
    alone = [texts(api.answer(COMPLETIONS, **greedy(prompt=prompt)))[0] for prompt in (one, two)]
    assert alone[0] != alone[1]
    for prompt in ([one, two], [ids(one), ids(two)], [one, ids(two)]):
        assert texts(api.answer(COMPLETIONS, **greedy(prompt=prompt))) == alone
    assert texts(api.answer(COMPLETIONS, **greedy(prompt=ids(one)))) == alone[:1]
    answer = api.answer(COMPLETIONS, **greedy(prompt=[one, two], n=2))
    assert texts(answer) == [alone[0], alone[0], alone[1], alone[1]]
    assert answer["usage"]["prompt_tokens"] == len(ids(one)) + len(ids(two))
    assert answer["usage"]["completion_tokens"] == 16
    chunks = api.stream(COMPLETIONS, **greedy(prompt=[one, two], n=2))
    assert by_index(chunks) == dict(enumerate(texts(answer)))
    assert len(answer["offramp"]["seed"]) == 2


def test_it_says_what_the_engine_says_in_process(api: Api) -> None:
    with LLM.from_loaded(scripted_model(WILD, num_pages=64, max_context=128), Serving(draft="off")) as llm:
        [output] = llm.generate("hello world", SamplingParams(temperature=3.0, seed=9, max_tokens=20, logprobs=2))
    body = {"prompt": "hello world", "temperature": 3.0, "seed": 9, "max_tokens": 20, "logprobs": 2}
    [choice] = api.answer(COMPLETIONS, **body)["choices"]
    assert choice["text"] == output.outputs[0].text
    assert choice["finish_reason"] == output.outputs[0].finish_reason
    assert output.outputs[0].logprobs is not None
    assert choice["logprobs"]["token_logprobs"] == [entry.logprob for entry in output.outputs[0].logprobs]


def test_sixteen_tokens_unless_told_otherwise(api: Api) -> None:
    answer = api.answer(COMPLETIONS, prompt="hello", ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")


@pytest.mark.parametrize("prompt", ["", [], [""], [[]]])
def test_an_empty_prompt_starts_from_bos(api: Api, prompt: object) -> None:  # B92
    answer = api.answer(COMPLETIONS, **greedy(prompt=prompt))
    assert answer["usage"]["prompt_tokens"] == 1
    assert texts(answer) == texts(api.answer(COMPLETIONS, **greedy(prompt=[TURN])))
    assert api.answer(COMPLETIONS, **greedy(prompt=" "))["usage"]["prompt_tokens"] == 1


def test_an_empty_prompt_is_refused_without_a_bos() -> None:  # B92
    model = ScriptedModel(WILD, num_pages=16, vocab_size=VOCAB)
    with served(loaded_model(model, bos=False)) as api:
        assert api.refusal(COMPLETIONS, greedy(prompt=""))["param"] == "prompt"
        assert api.answer(COMPLETIONS, **greedy(prompt="a"))


@pytest.mark.parametrize(
    "prompt", [None, 5, {}, True, [True], [1.5], ["a", 1], [[1], 2], [None], [[["a"]]], [-1], [VOCAB], [10**30]]
)
def test_other_prompts_are_refused(api: Api, prompt: object) -> None:
    assert api.refusal(COMPLETIONS, greedy(prompt=prompt))["param"] == "prompt"


def test_too_many_answers_are_refused(api: Api) -> None:
    assert api.refusal(COMPLETIONS, greedy(prompt=["a"] * 129))["param"] == "prompt"
    assert api.refusal(COMPLETIONS, greedy(prompt=["a"] * 128, n=128))["param"] == "n"


def test_special_tokens_are_parsed_in_raw_prompts(api: Api) -> None:
    answer = api.answer(COMPLETIONS, **greedy(prompt="<|im_start|>a"))
    assert answer["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize(("length", "status"), [(126, 200), (127, 200), (128, 400), (129, 400), (512, 400)])
def test_a_prompt_must_leave_room_for_a_token(api: Api, length: int, status: int) -> None:  # B45
    response = api.post(COMPLETIONS, greedy(prompt=[5] * length, max_tokens=40))
    assert response.status_code == status, response.text
    if status == 200:
        assert response.json()["usage"]["completion_tokens"] == 128 - length
        assert response.json()["choices"][0]["finish_reason"] == "length"
    else:
        error = response.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert str(length) in error["message"]
        assert "128" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["hello \u00e9 world", ids("hello \u00e9 world")])
def test_an_echo_puts_the_prompt_before_each_answer(api: Api, prompt: object, stream: bool) -> None:
    answers = texts(api.answer(COMPLETIONS, **greedy(prompt=prompt, n=2)))
    wanted = {index: f"hello \u00e9 world{text}" for index, text in enumerate(answers)}
    body = greedy(prompt=prompt, echo=True, n=2)
    if stream:
        assert by_index(api.stream(COMPLETIONS, **body)) == wanted
    else:
        assert dict(enumerate(texts(api.answer(COMPLETIONS, **body)))) == wanted


def test_logprobs_name_tokens_and_offsets(api: Api) -> None:
    [choice] = api.answer(COMPLETIONS, **greedy(prompt="hello", logprobs=2, max_tokens=30))["choices"]
    logprobs = choice["logprobs"]
    assert list(logprobs) == FIELDS
    assert {len(logprobs[name]) for name in FIELDS} == {30}
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert top[token] == logprob == max(top.values())
        assert len(top) == 2
        assert math.isfinite(logprob)
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"][offset:].startswith(token)


def test_with_no_alternatives_a_token_still_names_itself(api: Api) -> None:
    [choice] = api.answer(COMPLETIONS, **greedy(prompt="hello", logprobs=0))["choices"]
    assert [list(top) for top in choice["logprobs"]["top_logprobs"]] == [
        [token] for token in choice["logprobs"]["tokens"]
    ]


@pytest.mark.parametrize("prompt", ["hello \u4e16 world", "a", "<|im_start|>hello world"])
def test_an_echo_with_logprobs_tells_those_of_the_prompt(api: Api, prompt: str) -> None:  # B120
    body = greedy(prompt=prompt, logprobs=1, echo=True, n=2)
    whole = api.answer(COMPLETIONS, **body)
    for choice in whole["choices"]:
        logprobs = choice["logprobs"]
        assert {len(logprobs[name]) for name in FIELDS} == {len(ids(prompt)) + 4}
        assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
        assert all(value < 0 for value in logprobs["token_logprobs"][1:])
        assert logprobs["text_offset"][0] == 0
        assert logprobs["text_offset"][len(ids(prompt))] == len(prompt)
    streamed: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for chunk in api.stream(COMPLETIONS, **body):
        for choice in chunk["choices"]:
            if choice["logprobs"]:
                streamed[choice["index"]].append(choice["logprobs"])
    for choice in whole["choices"]:
        parts = streamed[choice["index"]]
        assert {name: [value for part in parts for value in part[name]] for name in FIELDS} == choice["logprobs"]


def test_prompt_logprobs_rank_tokens_by_id(api: Api) -> None:
    [choice] = api.answer(COMPLETIONS, **greedy(prompt="hello world", prompt_logprobs=2))["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert len(others) == len(ids("hello world")) - 1
    for token, entry in zip(ids("hello world")[1:], others, strict=True):
        assert str(token) in entry
        assert {1, 2} <= {value["rank"] for value in entry.values()}
        assert len(entry) in (2, 3)
    error = api.refusal(COMPLETIONS, greedy(prompt="a", prompt_logprobs=1, stream=True))
    assert error["param"] == "prompt_logprobs"


def test_logit_bias_has_token_ids_as_keys(api: Api) -> None:
    def first_token(**more: object) -> int:
        answer = api.answer(COMPLETIONS, **greedy(prompt="hello", max_tokens=1, offramp={"report": "tokens"}, **more))
        return int(answer["offramp"]["tokens"][0][0]["id"])

    likely = first_token()
    assert first_token(logit_bias={str(likely): -100}) == likely + 1  # the next best of the script


def test_stop_token_ids_and_min_tokens(api: Api) -> None:
    free = api.answer(COMPLETIONS, **greedy(prompt="hello", max_tokens=6, offramp={"report": "tokens"}))
    tokens = [token["id"] for token in free["offramp"]["tokens"][0]]
    stopped = api.answer(COMPLETIONS, **greedy(prompt="hello", max_tokens=6, stop_token_ids=[tokens[1]]))
    assert stopped["usage"]["completion_tokens"] == 2
    assert stopped["choices"][0]["finish_reason"] == "stop"
    body = greedy(prompt="hello", max_tokens=6, stop_token_ids=[tokens[1]], min_tokens=4)
    assert api.answer(COMPLETIONS, **body)["usage"]["completion_tokens"] >= 4


def test_text_becomes_tokens_and_back(api: Api) -> None:
    text = "hello <|im_end|> w\u00e9"
    answer = api.answer("/tokenize", prompt=text, return_token_strs=True, model="toy")
    assert answer["tokens"] == ids(text)
    assert answer["count"] == len(ids(text))
    assert answer["max_model_len"] == 128
    assert answer["token_strs"][2] == "<|im_end|>"
    assert api.answer("/detokenize", tokens=answer["tokens"])["prompt"] == text
    assert (
        api.answer("/tokenize", messages=[{"role": "user", "content": "a"}], add_generation_prompt=False)["count"]
        < (api.answer("/tokenize", messages=[{"role": "user", "content": "a"}])["count"])
    )


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [VOCAB]}, "tokens[0]"),
        ("/detokenize", {"tokens": [5, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": "5"}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
    ],
)
def test_tokens_that_are_none_are_refused(api: Api, path: str, body: object, param: str) -> None:
    assert api.refusal(path, body)["param"] == param
