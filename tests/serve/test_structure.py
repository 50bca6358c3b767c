"""`response_format` and `structured_outputs` over HTTP: what is asked for comes, what can't be is refused by name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from offramp.llm.serving import Serving
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.grammar.schemas import is_valid
from tests.serve.asking import CHAT, COMPLETIONS, Api, listening, messages, served

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 9}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}
BROKEN = '{"city": "Paris, "big" {"city" "Paris", {"city": ["Paris"'
BASES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": messages(BROKEN), "max_tokens": 200},
    COMPLETIONS: {"prompt": BROKEN, "max_tokens": 200},
}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    model = scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=64)
    with served(model, Serving(draft="ngram", draft_length="fixed")) as api:
        yield api


def schema_format(schema: object, **more: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def text_of(answer: dict[str, Any]) -> str:
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("strict", [{}, {"strict": True}, {"strict": False, "description": "a city"}])
def test_broken_json_in_the_prompt_is_not_copied_b121(api: Api, path: str, strict: dict[str, object]) -> None:
    asked = {**BASES[path], "response_format": schema_format(CITY, **strict), "temperature": 1.0, "seed": 4}
    with_drafts = api.answer(path, **asked)
    without = api.answer(path, **asked, offramp={"draft": "off"})
    assert is_valid(text_of(with_drafts), CITY)
    assert text_of(with_drafts) == text_of(without)
    assert with_drafts["offramp"]["num_draft_tokens"] > 0
    assert api.get("/health").status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("structure", "wanted"),
    [
        ({"choice": ["only this"]}, "only this"),
        ({"regex": "a{3}b"}, "aaab"),
        ({"grammar": 'start: "x" "y"'}, "xy"),
        ({"grammar": 'root ::= "x" "y"'}, "xy"),
        ({"json": {"const": [1, {"a": None}]}, "disable_any_whitespace": True}, '[1,{"a":null}]'),
        ({"json": '{"const": [1]}', "disable_any_whitespace": True, "disable_fallback": True}, "[1]"),
    ],
)
def test_the_ways_of_vllm(api: Api, path: str, structure: dict[str, Any], wanted: str) -> None:
    assert text_of(api.answer(path, **BASES[path], structured_outputs=structure)) == wanted


def test_an_object_and_plain_text(api: Api) -> None:
    asked = {**BASES[CHAT], "temperature": 0.0, "logit_bias": {str(chat_tokenizer().encode("}")[0]): 100.0}}
    assert json.loads(text_of(api.answer(CHAT, **asked, response_format={"type": "json_object"}))) == {}
    assert json.loads(text_of(api.answer(CHAT, **asked, structured_outputs={"json_object": True}))) == {}
    plain = {**BASES[CHAT], "temperature": 0.0, "max_tokens": 5}
    assert (
        api.answer(CHAT, **plain, response_format={"type": "text"})["choices"] == api.answer(CHAT, **plain)["choices"]
    )


def test_a_stream_and_several_choices(api: Api) -> None:
    asked = {**BASES[CHAT], "response_format": schema_format(CITY), "temperature": 1.5, "seed": 1, "n": 3}
    texts = [choice["message"]["content"] for choice in api.answer(CHAT, **asked)["choices"]]
    assert len(set(texts)) == 3
    assert all(is_valid(text, CITY) for text in texts)
    streamed = ["", "", ""]
    for chunk in api.stream(CHAT, **asked):
        for choice in chunk["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == texts


def test_a_cut_answer_says_so(api: Api) -> None:
    cut = api.answer(CHAT, **{**BASES[CHAT], "max_tokens": 4}, structured_outputs={"choice": ["abcdefgh"]})
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["choices"][0]["message"]["content"] == "abcd"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": {"schema": {}}}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
        ({"response_format": schema_format({"not": {}})}, "response_format.json_schema.schema"),
        ({"response_format": schema_format({}, strict=1)}, "response_format.json_schema.strict"),
        ({"response_format": schema_format({}, name=5)}, "response_format.json_schema.name"),
        ({"response_format": schema_format({}, extra=5)}, "response_format.json_schema.extra"),
        ({"response_format": schema_format("{")}, "response_format.json_schema.schema"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"choice": "ab"}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": [5]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": "start: nope"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"backend": "x"}}, "structured_outputs.backend"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_can_not_be_is_refused_by_name(api: Api, path: str, body: dict[str, Any], param: str) -> None:
    error = api.refusal(path, {**BASES[path], **body})
    assert error["param"] == param


def test_the_place_in_a_schema_is_named_soon(api: Api) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"uniqueItems": True}}}}
    begin = time.perf_counter()
    error = api.refusal(CHAT, {**BASES[CHAT], "response_format": schema_format(schema)})
    assert "#/properties/a/items" in error["message"]
    assert "uniqueItems" in error["message"]
    loop = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert "without end" in api.refusal(CHAT, {**BASES[CHAT], "response_format": schema_format(loop)})["message"]
    assert time.perf_counter() - begin < 5


def test_too_many_tokens_are_asked_for(api: Api) -> None:
    body = {**BASES[CHAT], "structured_outputs": {"choice": ["ab"]}, "min_tokens": 5}
    error = api.refusal(CHAT, body)
    assert "min_tokens" in error["message"]


def test_the_official_client(api: Api) -> None:
    with listening(api.app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="toy",
            messages=[{"role": "user", "content": BROKEN}],
            max_tokens=200,
            response_format={"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}},
        )
        assert is_valid(answer.choices[0].message.content or "", CITY)
        chosen = client.completions.create(
            model="toy", prompt="a", extra_body={"structured_outputs": {"choice": ["yes"]}}
        )
        assert chosen.choices[0].text == "yes"
