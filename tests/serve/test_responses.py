"""/v1/responses: the object and the events that lead to it, and what it refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from offramp.testing.models import chat_tokenizer
from tests.grammar.schemas import is_valid
from tests.serve.asking import CHAT, Api, served
from tests.serve.tooling import CALL, ROME, TIME, WEATHER_SCHEMA, tool_model

RESPONSES = "/v1/responses"
WEATHER = {"type": "function", "name": "weather", "description": "How warm it is", "parameters": WEATHER_SCHEMA}
CLOCK = {"type": "function", "name": "clock", "parameters": None}
TOOLS = [WEATHER, CLOCK]
BASE: dict[str, Any] = {"input": "hi", "max_output_tokens": 200, "temperature": 0.0}
SUM = {
    "type": "object",
    "properties": {"sum": {"enum": [1, 2, 3]}},
    "required": ["sum"],
    "additionalProperties": False,
}
SUM_FORMAT = {"format": {"type": "json_schema", "name": "sum", "schema": SUM, "strict": True}}
ITEM = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
NEW_EACH_TIME = ("id", "item_id", "call_id", "created_at")


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """Says anything."""
    with served(tool_model()) as api:
        yield api


def events_of(api: Api, **body: Any) -> list[dict[str, Any]]:
    """All events, whose names and numbers are checked."""
    response = api.post(RESPONSES, {**BASE, **body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *texts, rest = response.text.split("\n\n")
    assert rest == ""
    events = []
    for number, text in enumerate(texts):
        name, data = text.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        assert events[-1]["sequence_number"] == number
    return events


def without_ids(value: Any) -> Any:
    """What must be equal however the answer was asked for."""
    if isinstance(value, dict):
        return {key: without_ids(inner) for key, inner in value.items() if key not in NEW_EACH_TIME}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value


def lasting(response: dict[str, Any]) -> Any:
    """All of a response but what it took: the second time the prompt is cached."""
    usage = {key: value for key, value in response["usage"].items() if key != "input_tokens_details"}
    kept = {key: value for key, value in response.items() if key != "offramp"}
    return without_ids({**kept, "usage": usage})


def both(api: Api, **body: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole response and the events of a stream, which must come to the same."""
    whole = api.answer(RESPONSES, **{**BASE, **body})
    events = events_of(api, **body)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    last = events[-1]
    assert last["type"] == f"response.{whole['status']}"
    assert events[0]["response"]["id"] == last["response"]["id"]
    assert lasting(whole) == lasting(last["response"])
    assert replayed(events) == last["response"]["output"]
    return whole, events


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output as the events make it: each item begins, grows and ends in this order."""
    items: list[dict[str, Any]] = []
    open_item = False
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert not open_item
            assert event["output_index"] == len(items)
            assert event["item"]["status"] == "in_progress"
            items.append(event["item"])
            open_item = True
            continue
        item = items[event["output_index"]]
        assert event["output_index"] == len(items) - 1
        assert open_item
        if kind == "output_item.done":
            assert {**item, "status": event["item"]["status"]} == event["item"]
            items[-1], open_item = event["item"], False
            continue
        assert event["item_id"] == item["id"]
        if kind == "content_part.added":
            item["content"].append(dict(event["part"]))
        elif kind == "output_text.delta":
            item["content"][0]["text"] += event["delta"]
            item["content"][0]["logprobs"] += event["logprobs"]
        elif kind == "output_text.done":
            assert item["content"][0]["text"] == event["text"]
        elif kind == "content_part.done":
            assert item["content"][0] == event["part"]
        elif kind == "function_call_arguments.delta":
            item["arguments"] += event["delta"]
        else:
            assert kind == "function_call_arguments.done"
            assert item["arguments"] == event["arguments"]
    assert not open_item
    return items


def text_of(response: dict[str, Any]) -> str:
    [item] = response["output"]
    [part] = item["content"]
    assert (item["type"], item["role"], part["type"], part["annotations"]) == (
        "message",
        "assistant",
        "output_text",
        [],
    )
    return str(part["text"])


def test_text() -> None:
    with served(tool_model("Hello!")) as api:
        whole, events = both(api, instructions="Be brief", metadata={"team": "a"})
        assert text_of(whole) == "Hello!"
        assert whole["object"] == "response"
        assert (whole["status"], whole["error"], whole["incomplete_details"]) == ("completed", None, None)
        assert (whole["instructions"], whole["metadata"], whole["store"]) == ("Be brief", {"team": "a"}, False)
        assert whole["usage"]["total_tokens"] == whole["usage"]["input_tokens"] + whole["usage"]["output_tokens"]
        assert whole["offramp"]["mode"] == "lossless"
        assert sum(event["type"] == "response.output_text.delta" for event in events) > 1
        [item] = whole["output"]
        assert item["status"] == "completed"
        assert text_of(both(api, stop=["l"])[0]) == "He"


def test_an_empty_answer_is_an_empty_message() -> None:
    with served(tool_model("")) as api:
        assert text_of(both(api)[0]) == ""
        assert text_of(both(api, tools=TOOLS)[0]) == ""


def test_a_call_that_a_stop_string_cut_is_incomplete() -> None:
    with served(tool_model(CALL)) as api:
        body = {"input": "hi", "temperature": 0, "tools": [WEATHER], "tool_choice": "required"}
        [item] = api.answer(RESPONSES, **body, stop="unit")["output"]
        assert (item["status"], item["arguments"]) == ("incomplete", '{"city": "Rome", "')
        [item] = api.answer(RESPONSES, **body, parallel_tool_calls=False)["output"]
        assert (item["status"], item["arguments"]) == ("completed", ROME)


def test_a_cut_answer_is_incomplete(api: Api) -> None:
    whole, _ = both(api, max_output_tokens=3, seed=1, temperature=2.0, logit_bias={"2": -100, "0": -100})
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert whole["output"][0]["status"] == "incomplete"
    assert whole["usage"]["output_tokens"] == 3


def test_calls_are_items() -> None:
    with served(tool_model(f"Let me see.\n{CALL}\n{TIME}")) as api:
        whole, _ = both(api, tools=TOOLS)
        said, *calls = whole["output"]
        assert said["content"][0]["text"] == "Let me see."
        assert [(call["type"], call["name"], call["arguments"]) for call in calls] == [
            ("function_call", "weather", ROME),
            ("function_call", "clock", "{}"),
        ]
        assert all(call["call_id"].startswith("call_") and call["id"].startswith("fc_") for call in calls)
        assert len({item["id"] for item in whole["output"]}) == 3
        assert whole["tools"] == TOOLS
        assert whole["tool_choice"] == "auto"
        assert [item["type"] for item in both(api, tools=TOOLS, tool_choice="none")[0]["output"]] == ["message"]
        [call] = both(api, tools=TOOLS, parallel_tool_calls=False, tool_choice="required")[0]["output"]
        assert call["type"] == "function_call"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "weather"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
    ],
    ids=["named", "allowed"],
)
def test_a_call_that_must_be(api: Api, choice: dict[str, Any]) -> None:
    body = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "temperature": 1.5, "seed": 3}
    whole, events = both(api, **body)
    [call] = whole["output"]
    assert call["name"] == "weather"
    assert is_valid(call["arguments"], WEATHER_SCHEMA)
    assert whole["tool_choice"] == choice
    assert sum(event["type"] == "response.function_call_arguments.delta" for event in events) > 3


def test_json(api: Api) -> None:
    whole, _ = both(api, text=SUM_FORMAT)
    assert is_valid(text_of(whole), SUM)
    assert whole["text"] == SUM_FORMAT
    bias = {str(chat_tokenizer().encode("}")[0]): 100.0}
    assert json.loads(text_of(both(api, text={"format": {"type": "json_object"}}, logit_bias=bias)[0])) == {}


def test_it_says_what_chat_says(api: Api) -> None:
    body = {"temperature": 2.0, "seed": 5}
    conversation = [
        {"role": "developer", "content": "Be kind"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Well.", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "weather",
            "arguments": ROME,
            "status": "completed",
        },
        {"type": "function_call", "call_id": "call_2", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "21"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "noon"}]},
    ]
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, name, arguments in ((1, "weather", ROME), (2, "clock", "{}"))
    ]
    messages = [
        {"role": "system", "content": "Be brief"},
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Well.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "21"},
        {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
    ]
    asked = {**BASE, **body, "input": conversation, "instructions": "Be brief", "max_output_tokens": 12}
    told = api.answer(RESPONSES, **asked)
    chat = api.answer(CHAT, messages=messages, max_tokens=12, **body)
    assert text_of(told) == chat["choices"][0]["message"]["content"]
    assert told["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def test_logprobs(api: Api) -> None:
    include = ["message.output_text.logprobs"]
    whole, _ = both(api, include=include, top_logprobs=2, max_output_tokens=5, logit_bias={"2": -100, "0": -100})
    logprobs = whole["output"][0]["content"][0]["logprobs"]
    assert len(logprobs) == 5
    assert all(len(entry["top_logprobs"]) == 2 for entry in logprobs)
    assert whole["top_logprobs"] == 2
    assert api.refusal(RESPONSES, {**BASE, "include": include, "tools": TOOLS})["param"] == "include"


BAD = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": ["a"]}, "input[0]"),
    ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": "a", "weight": 1}]}, "input[0].weight"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
    ({"input": [{**ITEM, "call_id": None}]}, "input[0].call_id"),
    ({"input": [{**ITEM, "name": 5}]}, "input[0].name"),
    ({"input": [{**ITEM, "arguments": {}}]}, "input[0].arguments"),
    ({"input": [{**ITEM, "arguments": "{"}]}, "input"),
    ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input[0].output"),
    ({"input": "a" * 200_000}, "input"),
    ({"instructions": 5}, "instructions"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "a"}}, "prompt"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"reasoning": {"effort": "low"}}, "reasoning"),
    ({"include": ["file_search_call.results"]}, "include[0]"),
    ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": "5"}, "max_output_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_logprobs": 200}, "top_logprobs"),
    ({"n": 2}, "n"),
    ({"max_tokens": 2}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"text": {"verbosity": "high"}}, "text.verbosity"),
    ({"text": {"format": 5}}, "text.format"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"not": {}}}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "extra": 1}}}, "text.format.extra"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].function"),
    ({"tools": [CLOCK, CLOCK]}, "tools[1].name"),
    ({"tools": [{**CLOCK, "strict": True, "parameters": {"not": {}}}]}, "tools[0].parameters"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
    ({"tools": TOOLS, "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
    ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs"),
    ({"offramp": {"mode": 5}}, "offramp.mode"),
]


@pytest.mark.parametrize(("body", "param"), BAD)
def test_what_can_not_be_is_refused_by_name(api: Api, body: dict[str, Any], param: str) -> None:
    error = api.refusal(RESPONSES, {**BASE, **body})
    assert error["param"] == param


def test_what_asks_for_nothing_passes(api: Api) -> None:
    nothing = {
        "store": True,
        "user": "a",
        "service_tier": "auto",
        "previous_response_id": None,
        "truncation": "disabled",
        "reasoning": {},
        "background": False,
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "stream_options": {"include_obfuscation": False},
        "max_tool_calls": 3,
    }
    plain = {**BASE, "max_output_tokens": 8}
    assert text_of(api.answer(RESPONSES, **plain, **nothing)) == text_of(api.answer(RESPONSES, **plain))


def test_time_that_is_up_ends_a_stream_with_a_failure() -> None:
    """The clock goes by looks at it, of which each step takes some: the first tokens are there by then."""
    looks = itertools.count()
    with served(tool_model(), clock=lambda: next(looks) * 1e-3, request_seconds=0.3) as api:
        events = events_of(api, max_output_tokens=400, logit_bias={"2": -100, "0": -100})
        assert events[-1]["type"] == "response.failed"
        response = events[-1]["response"]
        assert (response["status"], response["error"]["code"]) == ("failed", "request_timeout")
        assert response["id"] == events[0]["response"]["id"]
