"""Every field of the published schemas is on exactly one of the three lists, and behaves so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offramp.llm.field_lists import FieldLists
from offramp.serve import fields
from offramp.serve.schema import (
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    OfframpBody,
    ResponseBody,
    StreamOptionsBody,
    StructuredOutputsBody,
    TokenizeBody,
)
from offramp.testing.models import TOOL_TEMPLATE, chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, messages, served

VALUES: dict[str, dict[str, Any]] = {  # OpenAI's published fields, each with a value that asks for something
    CHAT: {
        "messages": messages("hi"),
        "model": "toy",
        "audio": {"voice": "alloy", "format": "mp3"},
        "frequency_penalty": 0.5,
        "function_call": {"name": "f"},
        "functions": [{"name": "f"}],
        "logit_bias": {"65": -100},
        "logprobs": True,
        "max_completion_tokens": 3,
        "max_tokens": 3,
        "metadata": {"team": "a"},
        "modalities": ["text", "audio"],
        "moderation": {"model": "m"},
        "n": 2,
        "parallel_tool_calls": False,
        "prediction": {"type": "content", "content": "hello"},
        "presence_penalty": 0.5,
        "prompt_cache_key": "a",
        "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h",
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "safety_identifier": "a",
        "seed": 7,
        "service_tier": "flex",
        "stop": ["x"],
        "store": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "top_logprobs": 2,
        "top_p": 0.5,
        "user": "a",
        "verbosity": "low",
        "web_search_options": {},
    },
    COMPLETIONS: {
        "model": "toy",
        "prompt": "hi",
        "best_of": 3,
        "echo": True,
        "frequency_penalty": 0.5,
        "logit_bias": {"65": -100},
        "logprobs": 2,
        "max_tokens": 3,
        "n": 2,
        "presence_penalty": 0.5,
        "seed": 7,
        "stop": "x",
        "stream": True,
        "stream_options": {"include_usage": True},
        "suffix": "end",
        "temperature": 0.5,
        "top_p": 0.5,
        "user": "a",
    },
}
LISTS = {CHAT: fields.CHAT, COMPLETIONS: fields.COMPLETION}
BASES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": messages("hi"), "max_tokens": 2},
    COMPLETIONS: {"prompt": "hi", "max_tokens": 2},
}
NEEDS: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
    "tool_choice": {"tools": VALUES[CHAT]["tools"]},
}
REFUSED_VALUES = {"best_of"}  # honoured, but not with that value

PUBLISHED = [(path, name) for path, values in VALUES.items() for name in values]
KINDS: list[tuple[FieldLists, type[Body]]] = [
    (fields.CHAT, ChatBody),
    (fields.COMPLETION, CompletionBody),
    (fields.RESPONSE, ResponseBody),
    (fields.TOKENIZE, TokenizeBody),
    (fields.DETOKENIZE, DetokenizeBody),
    (fields.OFFRAMP, OfframpBody),
    (fields.STREAM_OPTIONS, StreamOptionsBody),
    (fields.STRUCTURED_OUTPUTS, StructuredOutputsBody),
]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(
        scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=16, template=TOOL_TEMPLATE)
    ) as api:
        yield api


@pytest.mark.parametrize(("lists", "body"), KINDS, ids=[body.__name__ for _, body in KINDS])
def test_the_lists_exclude_each_other_and_honour_what_has_a_type(lists: FieldLists, body: type[Body]) -> None:
    assert lists.honoured == {field.alias or name for name, field in body.model_fields.items()}
    assert not lists.honoured & lists.without_effect
    assert not lists.honoured & set(lists.refused)
    assert not lists.without_effect & set(lists.refused)


@pytest.mark.parametrize(("path", "name"), PUBLISHED)
def test_a_published_field_behaves_as_its_list_says(api: Api, path: str, name: str) -> None:
    lists, value = LISTS[path], VALUES[path][name]
    body = {**BASES[path], **NEEDS.get(name, {}), name: value}
    if name in lists.refused or name in REFUSED_VALUES:
        error = api.refusal(path, body)
        assert error["param"] == name
        assert name in error["message"]
    else:
        assert name in lists.honoured | lists.without_effect
        assert api.post(path, body).status_code == 200


@pytest.mark.parametrize(("path", "name"), PUBLISHED)
def test_null_asks_for_nothing(api: Api, path: str, name: str) -> None:
    required = name in ("messages", "prompt")
    assert api.post(path, {**BASES[path], name: None}).status_code == (400 if required else 200)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_neutral_values_of_refused_fields_pass(api: Api, path: str) -> None:
    neutral = {name: refusal.neutral[0] for name, refusal in LISTS[path].refused.items() if refusal.neutral}
    assert len(neutral) > 10
    assert api.post(path, {**BASES[path], **neutral}).status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_as_many_as_are_returned_may_be_drawn(api: Api, path: str) -> None:
    assert len(api.answer(path, **BASES[path], n=2, best_of=2)["choices"]) == 2
    for n, best_of in ((2, 3), (2, 1), (1, 2)):
        assert api.refusal(path, {**BASES[path], "n": n, "best_of": best_of})["param"] == "best_of"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_without_effect_means_the_same_answer(api: Api, path: str) -> None:
    plain = {**BASES[path], "seed": 5, "temperature": 2.0, "max_tokens": 8}
    idle = {name: VALUES[CHAT][name] for name in LISTS[path].without_effect}
    first, second = api.answer(path, **plain), api.answer(path, **plain, **idle)
    assert first["choices"] == second["choices"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", ["temprature", "options", "keep_alive", "max_new_tokens"])
def test_unknown_fields_are_refused_by_name(api: Api, path: str, name: str) -> None:
    error = api.refusal(path, {**BASES[path], name: 1})
    assert error["param"] == name
    assert repr(name) in error["message"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ({"n_predict": 5}, "use max_tokens"),
        ({"repeat_penalty": 1.1}, "use repetition_penalty"),
        ({"grammar": 'root ::= "a"'}, "use structured_outputs"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "use json_schema"),
        ({"guided_choice": ["a"]}, "use structured_outputs"),
    ],
)
def test_names_of_other_servers_lead_to_ours(api: Api, path: str, field: dict[str, Any], hint: str) -> None:
    assert hint in api.refusal(path, {**BASES[path], **field})["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"offramp": {"temperature": 1}}, "offramp.temperature"),
        ({"offramp": {"mode": 5}}, "offramp.mode"),
        ({"offramp": []}, "offramp"),
        ({"messages": [{"role": "user", "content": "a", "weight": 1}]}, "messages[0].weight"),
    ],
)
def test_fields_of_nested_objects_are_refused_by_name(api: Api, body: dict[str, Any], param: str) -> None:
    assert api.refusal(CHAT, {**BASES[CHAT], **body})["param"] == param


def test_the_guide_names_every_field() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    bodies = (fields.CHAT, fields.COMPLETION, fields.RESPONSE)
    kinds = (*bodies, fields.OFFRAMP, fields.STREAM_OPTIONS, fields.STRUCTURED_OUTPUTS)
    names = {name for lists in kinds for name in lists.honoured | lists.without_effect}
    refused = {name for lists in (*bodies, fields.STRUCTURED_OUTPUTS) for name in lists.refused}
    assert {name for name in names | refused if f"`{name}`" not in guide} == set()
