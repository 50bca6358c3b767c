"""Tools, a model that calls them, and its answers without the ids, which are new each time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import openai
from pydantic import BaseModel

from offramp.llm.loading import LoadedModel
from offramp.testing.models import END_OF_TURN, TOOL_TEMPLATE, chat_tokenizer, scripted_model
from offramp.testing.scripted import Script, mixing, peak
from tests.serve.asking import listening, served

VOCAB = chat_tokenizer().vocab_size
WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "How warm it is", "parameters": WEATHER_SCHEMA},
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
STRICT = [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}, CLOCK]  # type: ignore[dict-item]

ROME = '{"city": "Rome", "unit": "C"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def speaking(*answers: str) -> Script:
    """Whatever the prompt, greedily the answer whose beginning was generated; the first at the start, then the end.

    Generation starts behind the last "assistant" and a line end.
    """
    tokenizer = chat_tokenizer()
    opening = tuple(tokenizer.encode("<|im_start|>assistant\n"))
    written = [(*tokenizer.encode(answer), END_OF_TURN) for answer in answers]

    def script(history: tuple[int, ...], depth: int) -> Any:
        starts = [at for at in range(len(history)) if history[at : at + len(opening)] == opening]
        said = history[starts[-1] + len(opening) :] if starts else ()
        fitting = (ids[len(said)] for ids in written if len(ids) > len(said) and ids[: len(said)] == said)
        return peak(next(fitting, END_OF_TURN), VOCAB)

    return script


def tool_model(*answers: str, num_pages: int = 16) -> LoadedModel:
    """Says one of these, or with none given whatever comes."""
    script = speaking(*answers) if answers else mixing(VOCAB, first=3)
    return scripted_model(script, num_pages=num_pages, template=TOOL_TEMPLATE)


class Weather(BaseModel):
    """How warm it is."""

    city: str
    unit: str


class Degrees(BaseModel):
    degrees: bool


@contextmanager
def tool_client() -> Iterator[openai.OpenAI]:
    """The official client; the model calls `Weather` behind a text, or a tool at once, or answers in JSON."""
    said = f"Let me see.\n{CALL.replace('weather', 'Weather')}"
    with (
        served(tool_model(said, CALL, '{"degrees":true}')) as api,
        listening(api.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and arguments; the shape is checked."""
    calls = message.get("tool_calls", [])
    assert all(set(call) == {"id", "type", "function"} and call["type"] == "function" for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def streamed(chunks: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Each choice's message as its deltas make it, and its finish reason."""
    choices: dict[int, dict[str, Any]] = {}
    for part in (part for chunk in chunks for part in chunk["choices"]):
        choice = choices.setdefault(part["index"], {"content": "", "tool_calls": [], "finish_reason": None})
        assert choice["finish_reason"] is None
        choice["finish_reason"] = part["finish_reason"]
        choice["content"] += part["delta"].get("content", "")
        for call in part["delta"].get("tool_calls", []):
            if call["index"] == len(choice["tool_calls"]):
                assert set(call) == {"index", "id", "type", "function"}
                assert call["function"]["arguments"] == ""
                choice["tool_calls"].append({key: value for key, value in call.items() if key != "index"})
                choice["tool_calls"][-1]["function"] = dict(call["function"])
            else:
                assert call["index"] == len(choice["tool_calls"]) - 1
                assert set(call) == {"index", "function"}
                choice["tool_calls"][-1]["function"]["arguments"] += call["function"]["arguments"]
    return choices
