"""The official `openai` client's responses: create, stream, parse, and a loop of calls and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.test_responses import TOOLS
from tests.serve.tooling import ROME, Degrees, Weather, tool_client

KEYWORDS: dict[str, Any] = {"model": "toy", "temperature": 0, "max_output_tokens": 200}
QUESTION = "How warm is it in Rome?"


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with tool_client() as client:
        yield client


def test_create_and_its_stream(client: openai.OpenAI) -> None:
    whole = client.responses.create(**KEYWORDS, input=QUESTION, instructions="Be brief.")
    assert whole.status == "completed"
    assert whole.output_text.startswith("Let me see.")
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole.model_extra["offramp"]["mode"] == "lossless"
    events = list(client.responses.create(**KEYWORDS, input=QUESTION, instructions="Be brief.", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text


def test_a_loop_of_call_and_result(client: openai.OpenAI) -> None:
    conversation: list[Any] = [{"role": "user", "content": QUESTION}]
    first = client.responses.create(**KEYWORDS, input=conversation, tools=TOOLS, tool_choice="required")
    [call] = first.output
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", ROME)
    conversation += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "21"}]
    again = client.responses.create(**KEYWORDS, input=conversation, tools=TOOLS)
    assert again.usage.input_tokens > first.usage.input_tokens
    conversation += [*again.output, {"role": "user", "content": "And now?"}]
    assert client.responses.create(**KEYWORDS, input=conversation, tools=TOOLS, tool_choice="none").output_text


def test_the_stream_helper_with_tools_from_types(client: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}]
    with client.responses.stream(**KEYWORDS, input=QUESTION, tools=tools) as stream:
        events = list(stream)
        final = stream.get_final_response()
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == ROME
    assert len(pieces) > 1
    said, call = final.output
    assert said.content[0].text == "Let me see."
    assert (call.name, call.arguments) == ("Weather", ROME)


def test_answers_parsed_into_types(client: openai.OpenAI) -> None:
    answer = client.responses.parse(**KEYWORDS, input=QUESTION, text_format=Degrees)
    assert answer.output_parsed == Degrees(degrees=True)
    with client.responses.stream(**KEYWORDS, input=QUESTION, text_format=Degrees) as stream:
        [done] = [event for event in stream if event.type == "response.output_text.done"]
        assert done.parsed == Degrees(degrees=True)
        assert stream.get_final_response().output_parsed == Degrees(degrees=True)


def test_refusals_have_the_clients_class(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(**KEYWORDS, input=QUESTION, previous_response_id="resp_1")
    assert refusal.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
