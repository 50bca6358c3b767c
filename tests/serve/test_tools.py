"""Tools over HTTP: calls are found or forced, whole and in streams, and fed back; bad ones are refused by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from offramp.llm.serving import Serving
from offramp.model.tool_format import FORMATS, ToolFormat
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.grammar.schemas import is_valid
from tests.grammar.tagged import calls_in
from tests.serve.asking import CHAT, Api, messages, served
from tests.serve.tooling import (
    CALL,
    CLOCK,
    ROME,
    STRICT,
    TIME,
    TOOLS,
    VOCAB,
    WEATHER,
    WEATHER_SCHEMA,
    calls_of,
    streamed,
    tool_model,
)

BASE: dict[str, Any] = {"messages": messages("hi"), "tools": TOOLS, "max_tokens": 200, "temperature": 0.0}
WEATHER_CALL = ("weather", {"city": "Rome", "unit": "C"})
NAMED = {"type": "function", "function": {"name": "weather"}}
ONLY_CLOCK = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CLOCK]}}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """Says anything."""
    with served(tool_model(), Serving(draft="ngram", draft_length="fixed")) as api:
        yield api


def both(api: Api, **body: Any) -> tuple[dict[str, Any], str]:
    """Message and finish reason; the stream must say the same."""
    answer = api.answer(CHAT, **{**BASE, **body})
    [choice] = answer["choices"]
    message, reason = choice["message"], choice["finish_reason"]
    [told] = streamed(api.stream(CHAT, **{**BASE, **body})).values()
    assert told["content"] == (message["content"] or "")
    assert [call["function"] for call in told["tool_calls"]] == [
        call["function"] for call in message.get("tool_calls", [])
    ]
    assert told["finish_reason"] == reason
    return message, reason


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (CALL, None, [WEATHER_CALL]),
        (f"Let me see.\n{CALL}\n{TIME}", "Let me see.", [WEATHER_CALL, ("clock", {})]),
        ("Hello!", "Hello!", []),
        ("<tool_call>\n{broken", "<tool_call>\n{broken", []),
        ('<tool_call>{"name": "other"}</tool_call>', '<tool_call>{"name": "other"}</tool_call>', []),
    ],
)
def test_what_the_model_writes_by_itself(text: str, content: str | None, calls: list[Any]) -> None:
    with served(tool_model(text)) as api:
        message, reason = both(api)
        assert message["content"] == content
        assert calls_of(message) == calls
        assert reason == ("tool_calls" if calls else "stop")
        silent, reason = both(api, tool_choice="none")
        assert (silent["content"], reason) == (text, "stop")
        assert "tool_calls" not in silent


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_every_format_is_read_and_forced_whole_and_in_streams(layout: ToolFormat) -> None:
    calls = calls_in(layout, ("weather", ROME), ("clock", "{}"))
    text = "" if layout.bare else "Let me see."
    serving = Serving(draft="off", tool_call_parser=layout.name)
    with served(tool_model(text + calls, calls), serving) as api:
        message, reason = both(api)
        assert (message["content"], reason) == (text or None, "tool_calls")
        assert calls_of(message) == [WEATHER_CALL, ("clock", {})]
        assert calls_of(both(api, tool_choice="required")[0]) == [WEATHER_CALL, ("clock", {})]
        assert calls_of(both(api, parallel_tool_calls=False)[0]) == [WEATHER_CALL]
        message, reason = both(api, tool_choice="required", max_tokens=len(calls) // 2)
        assert reason == "length"
        assert message["tool_calls"][0]["function"]["name"] == "weather"


def test_several_choices_have_calls_of_their_own() -> None:
    with served(tool_model(CALL)) as api:
        body = {**BASE, "n": 2}
        answer = api.answer(CHAT, **body)
        assert [calls_of(choice["message"]) for choice in answer["choices"]] == [[WEATHER_CALL]] * 2
        assert [calls_of(choice) for choice in streamed(api.stream(CHAT, **body)).values()] == [[WEATHER_CALL]] * 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"weather", "clock"}), (NAMED, {"weather"}), (ONLY_CLOCK, {"clock"})],
    ids=["required", "named", "allowed"],
)
def test_a_call_that_must_be_is_whole_and_fits(api: Api, seed: int, choice: Any, names: set[str]) -> None:
    """Drafts change nothing; the end token comes where it may."""
    body = {"tool_choice": choice, "temperature": 1.5, "seed": seed, "logit_bias": {"2": 100.0}}
    message, reason = both(api, **body)
    assert reason == "tool_calls"
    assert message["content"] is None
    calls = calls_of(message)
    assert {name for name, _ in calls} <= names
    assert calls
    written = [call["function"] for call in message["tool_calls"] if call["function"]["name"] == "weather"]
    assert all(is_valid(function["arguments"], WEATHER_SCHEMA) for function in written)
    assert choice is not NAMED or len(calls) == 1
    plain = api.answer(CHAT, **{**BASE, **body}, offramp={"draft": "off"})
    assert calls_of(plain["choices"][0]["message"]) == calls


def test_one_call_at_most(api: Api) -> None:
    with served(tool_model(f"{CALL}\n{TIME}")) as calling:
        message, reason = both(calling, parallel_tool_calls=False)
        assert (calls_of(message), reason) == ([WEATHER_CALL], "tool_calls")
    for seed in range(2):
        message, _ = both(api, parallel_tool_calls=False, tool_choice="required", temperature=2.0, seed=seed)
        assert len(calls_of(message)) == 1


def test_strict_tools_bind_what_follows_the_tag_and_no_more() -> None:
    """The model would write arguments that do not fit."""
    wrong = f"Well. {CALL.replace('Rome', 'A long name').replace('unit', 'grade')}"
    with served(tool_model(wrong, "Well. <tool_call>\n")) as api:
        message, _ = both(api)
        assert calls_of(message) == [("weather", {"city": "A long name", "grade": "C"})]
        message, reason = both(api, tools=STRICT)
        assert message["content"] == "Well."
        [call] = message["tool_calls"]
        assert is_valid(call["function"]["arguments"], WEATHER_SCHEMA)
        assert reason == "tool_calls"
    with served(tool_model("Just text <tool")) as api:
        assert both(api, tools=STRICT)[0]["content"] == "Just text <tool"


def test_a_stream_tells_forced_arguments_piece_by_piece(api: Api) -> None:
    chunks = api.stream(CHAT, **{**BASE, "tool_choice": NAMED, "offramp": {"draft": "off"}})
    deltas = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]
    assert deltas[0]["function"] == {"name": "weather", "arguments": ""}
    assert len(deltas) > 5


def test_json_or_calls(api: Api) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"enum": [1, 2, 3]}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    for seed in range(2):
        body = {"response_format": shape, "parallel_tool_calls": False, "temperature": 2.0, "seed": seed}
        message, reason = both(api, **body, tools=STRICT[:1])
        assert reason == ("stop" if message["content"] else "tool_calls")
        assert is_valid(message["content"], schema) if message["content"] else calls_of(message)
    with served(tool_model(CALL)) as calling:
        assert calls_of(both(calling, response_format=shape)[0]) == [WEATHER_CALL]
        assert calls_of(both(calling, response_format={"type": "json_object"})[0]) == [WEATHER_CALL]
        assert calls_of(both(calling, response_format=shape, tool_choice="required")[0])[0] == WEATHER_CALL
        assert is_valid(both(calling, response_format=shape, tool_choice="none")[0]["content"], schema)
    error = api.refusal(CHAT, {**BASE, "structured_outputs": {"regex": "a"}})
    assert error["param"] == "structured_outputs"


def test_a_cut_call_says_so(api: Api) -> None:
    message, reason = both(api, tool_choice=NAMED, max_tokens=50)
    assert reason == "length"
    [call] = message["tool_calls"]
    assert call["function"]["name"] == "weather"
    with served(tool_model(CALL)) as calling:
        message, reason = both(calling, max_tokens=20)
        assert reason == "length"
        assert CALL.startswith(message["content"])


def test_a_call_that_a_stop_string_cut_is_no_reason_to_act(api: Api) -> None:
    message, reason = both(api, tool_choice=NAMED, stop=["unit"])
    assert reason == "stop"
    [call] = message["tool_calls"]
    assert call["function"]["arguments"].endswith(', "')
    assert both(api, tool_choice=NAMED, stop=["</tool_call>"])[1] == "tool_calls"  # behind them


def test_logprobs_of_calls_are_all_there() -> None:
    with served(tool_model(CALL)) as api:
        body = {**BASE, "logprobs": True}
        whole = api.answer(CHAT, **body)
        tokens = whole["choices"][0]["logprobs"]["content"]
        assert len(tokens) == whole["usage"]["completion_tokens"]
        parts = [choice["logprobs"] for chunk in api.stream(CHAT, **body) for choice in chunk["choices"]]
        assert [token for part in parts if part for token in part["content"]] == tokens


def test_calls_and_results_go_back_to_the_model() -> None:
    """The template gets them: what it makes of them is read from the prompt's tokens."""
    history = [
        *messages("How warm is it?"),
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ROME}, "index": 0}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "21"}]},
    ]
    with served(tool_model("21 degrees.")) as api:
        told = api.answer("/tokenize", messages=history, tools=TOOLS)["tokens"]
        prompt = chat_tokenizer().decode(told, skip_special=False)
        assert "weather: How warm it is" in prompt
        assert "<|im_start|>assistant\n<tool_call>\n{" in prompt
        assert '"city": "Rome"' in prompt
        assert "<|im_start|>tool\n21<|im_end|>" in prompt
        assert both(api, messages=history)[0]["content"] == "21 degrees."


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (
            {"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "tool_calls",
        ),
        ({"role": "user", "content": "a", "tool_call_id": "b"}, "tool_call_id"),
        ({"role": "tool", "content": "a", "tool_call_id": 5}, "tool_call_id"),
        ({"role": "tool"}, "content"),
        ({"role": "assistant"}, "content"),
        ({"role": "assistant", "tool_calls": []}, "content"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"type": "custom", "function": {}}]}, "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, "tool_calls[0].function.name"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "tool_calls[0].function.arguments"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            "tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]},
            "tool_calls[0].function.arguments",
        ),
    ],
)
def test_bad_calls_and_results_are_refused(api: Api, message: dict[str, Any], param: str) -> None:
    error = api.refusal(CHAT, {**BASE, "messages": [*messages("a"), message]})
    assert error["param"] == f"messages[1].{param}"


def function(**fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **fields}}


def strict(schema: object) -> dict[str, object]:
    return function(parameters=schema, strict=True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "f"}, "extra": 1}]}, "tools[0].extra"),
        ({"tools": [function(name="a b")]}, "tools[0].function.name"),
        ({"tools": [function(name="")]}, "tools[0].function.name"),
        ({"tools": [function(name=5)]}, "tools[0].function.name"),
        ({"tools": [function(description=5)]}, "tools[0].function.description"),
        ({"tools": [function(strict=1)]}, "tools[0].function.strict"),
        ({"tools": [function(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [function(parameters={"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [function(parameters={"properties": []})]}, "tools[0].function.parameters.properties"),
        ({"tools": [CLOCK, function(), CLOCK]}, "tools[2].function.name"),
        ({"tools": [function(name=f"f{n}") for n in range(129)]}, "tools"),
        ({"tools": [CLOCK, strict({"properties": {"a": {"not": {}}}})]}, "tools[1].function.parameters"),
        ({"tools": [strict({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})]}, "tools[0].function.parameters"),
        ({"tools": [strict({"$ref": "#/$defs/a"})]}, "tools[0].function.parameters"),
        ({"tools": [strict({"description": "long" * 20000})]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "tool", "function": {"name": "clock"}}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
            "tool_choice.allowed_tools.tools",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [CLOCK]}}},
            "tool_choice.allowed_tools.mode",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function()]}}},
            "tool_choice.allowed_tools.tools",
        ),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": NAMED, "tools": None}, "tool_choice.function.name"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
    ],
)
def test_what_can_not_be_is_refused_by_name(api: Api, body: dict[str, Any], param: str) -> None:
    error = api.refusal(CHAT, {**BASE, **body})
    assert error["param"] == param


def test_hostile_schemas_are_refused_soon(api: Api) -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    bombs = [
        {"properties": {f"a{n}": {"$ref": "#"} for n in range(50)}, "required": [f"a{n}" for n in range(50)]},
        {"properties": {"a": {"type": "string", "pattern": "(a{1,999}){1,999}"}}},
        {"properties": {"a": {"type": "array", "minItems": 10**6}}},
        {"allOf": [deep] * 8},
    ]
    start = time.perf_counter()
    for schema in bombs:
        response = api.post(CHAT, {**BASE, "tools": [strict(schema)], "max_tokens": 1})
        assert response.status_code in (200, 400)
    assert time.perf_counter() - start < 10
    assert api.get("/health").status_code == 200


def test_a_template_without_tools() -> None:
    with served(scripted_model(mixing(VOCAB, first=3), num_pages=16)) as api:
        error = api.refusal(CHAT, BASE)
        assert error["param"] == "tools"
        assert "chat template" in error["message"]
        assert api.post(CHAT, {**BASE, "tool_choice": "none", "max_tokens": 2}).status_code == 200
        assert api.post(CHAT, {**BASE, "tools": [], "max_tokens": 2}).status_code == 200
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        history = [*messages("a"), {"role": "assistant", "tool_calls": [call]}]
        assert api.refusal(CHAT, {**BASE, "tools": [], "messages": history})["param"] == "messages[1].tool_calls"
        assert api.refusal("/tokenize", {"messages": messages("a"), "tools": TOOLS})["param"] == "tools"


def test_tools_without_effect_on_text(api: Api) -> None:
    plain = {key: value for key, value in BASE.items() if key != "tools"} | {"max_tokens": 8}
    for none in (
        {"tools": [WEATHER], "tool_choice": "none"},
        {"tools": []},
        {"tool_choice": "auto"},
        {"parallel_tool_calls": False},
    ):
        assert api.answer(CHAT, **plain, **none)["choices"] == api.answer(CHAT, **plain)["choices"]
