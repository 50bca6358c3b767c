"""The official `openai` client's helpers for tools and JSON: functions from types, parsed answers, streams, loops."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from tests.serve.tooling import ROME, TOOLS, Degrees, Weather, tool_client

MESSAGES = [{"role": "user", "content": "How warm is it in Rome?"}]
KEYWORDS = {"model": "toy", "messages": MESSAGES, "temperature": 0, "max_tokens": 200}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with tool_client() as client:
        yield client


def test_a_loop_of_call_and_result(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(**KEYWORDS, tools=TOOLS, tool_choice="required")
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert [(call.function.name, call.function.arguments) for call in message.tool_calls] == [("weather", ROME)]
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}
    again = client.chat.completions.create(**{**KEYWORDS, "messages": [*MESSAGES, message, result]}, tools=TOOLS)
    assert again.choices[0].finish_reason == "stop"
    assert again.usage.prompt_tokens > first.usage.prompt_tokens


def test_functions_from_types(client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    answer = client.chat.completions.parse(**KEYWORDS, tools=tools)
    message = answer.choices[0].message
    assert message.content == "Let me see."
    assert message.tool_calls[0].function.parsed_arguments == Weather(city="Rome", unit="C")
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}
    again = client.chat.completions.parse(**{**KEYWORDS, "messages": [*MESSAGES, message, result]}, tools=tools)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def test_the_stream_helper(client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    with client.chat.completions.stream(**KEYWORDS, tools=tools) as stream:
        events = list(stream)
    pieces = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert "".join(pieces) == ROME
    assert len(pieces) > 1
    [done] = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert done.parsed_arguments == Weather(city="Rome", unit="C")
    [choice] = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.tool_calls[0].function.parsed_arguments == done.parsed_arguments


def test_answers_parsed_into_types(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(**KEYWORDS, response_format=Degrees)
    assert answer.choices[0].message.parsed == Degrees(degrees=True)
    said = answer.choices[0].message.to_dict(warnings=False)
    follow = [*MESSAGES, said, {"role": "user", "content": "and now?"}]
    assert client.chat.completions.parse(**{**KEYWORDS, "messages": follow}, response_format=Degrees)
    with client.chat.completions.stream(**KEYWORDS, response_format=Degrees) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
    assert json.loads("".join(deltas)) == {"degrees": True}
    assert stream.get_final_completion().choices[0].message.parsed == Degrees(degrees=True)


def test_refusals_have_the_clients_class(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(**KEYWORDS, tools=[TOOLS[0], TOOLS[0]])
    assert refusal.value.param == "tools[1].function.name"
