"""Grammars of answers with calls: what they bind, what they leave open, what can't be compiled."""

from __future__ import annotations

import pytest

from offramp.core import Matcher
from offramp.errors import InvalidRequestError
from offramp.grammar import Function, ToolAnswer
from offramp.model.tool_format import BARE, FORMATS, LISTED, TAGGED, ToolFormat
from offramp.testing.models import TURN, chat_tokenizer
from tests.grammar.grammars import allowed_texts, feed, grammars

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
CALLS = ('{"city": "Rome"}', '{"city": "Oslo", "days": 3}')


def answer(layout: ToolFormat = TAGGED, **more: object) -> ToolAnswer:
    functions = (Function(name="weather", schema=CITY), Function(name="any", schema={}))
    return ToolAnswer(**{"format": layout, "functions": functions, "parallel": True, "text": False, **more})  # type: ignore[arg-type]


def matcher(asked: ToolAnswer) -> Matcher:
    return grammars().compile_calls(asked).matcher()


def written(layout: ToolFormat, *arguments: str, name: str = "weather") -> str:
    calls = layout.between.join(layout.head_of(name) + each + layout.tail for each in arguments)
    return layout.begin + calls + layout.end


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_calls_alone(layout: ToolFormat) -> None:
    one = matcher(answer(layout))
    feed(one, written(layout, CALLS[0]))
    assert "" in allowed_texts(one)
    several = matcher(answer(layout))
    feed(several, written(layout, *CALLS))
    assert "" in allowed_texts(several)
    single = matcher(answer(layout, parallel=False))
    feed(single, written(layout, CALLS[1]))
    assert single.ended or allowed_texts(single) == {""}
    other = matcher(answer(layout))
    feed(other, written(layout, '{"x": [1]}', name="any"))


def test_arguments_fit_the_schema() -> None:
    begun = matcher(answer())
    feed(begun, TAGGED.begin + TAGGED.head_of("weather"))
    assert begun.forced(99) == tuple(chat_tokenizer().encode('{"city": "'))
    feed(begun, '{"city": "Rome"')
    assert allowed_texts(begun) <= {"}", ",", ", "}


def test_required_means_that_text_is_none() -> None:
    start = matcher(answer())
    assert start.forced(99) == tuple(chat_tokenizer().encode(TAGGED.begin + '{"name": "'))
    with pytest.raises(AssertionError):
        feed(matcher(answer()), "Sure")


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_text_or_calls(layout: ToolFormat) -> None:
    either = answer(layout, text=True)
    said = matcher(either)
    assert "" in allowed_texts(said)
    feed(said, "Any text: 5 < 6 [x] <tool")
    assert "" in allowed_texts(said)
    called = matcher(either)
    feed(called, ("" if layout.bare else "Well.\n") + written(layout, CALLS[0]))
    assert "" in allowed_texts(called)
    if not layout.bare:
        begun = matcher(either)
        feed(begun, f"Well.\n{layout.marker}")
        assert "" not in allowed_texts(begun)
        assert "x" not in allowed_texts(begun)


def test_a_marker_that_is_a_special_token() -> None:
    layout = ToolFormat(
        name="special",
        signs=(),
        marker="<|im_start|>",
        begin="<|im_start|>[",
        head=LISTED.head,
        tail="}",
        between=", ",
        end="]",
    )
    must = matcher(answer(layout))
    assert must.forced(1) == (TURN,)
    may = matcher(answer(layout, text=True))
    feed(may, "Well <|im_start|>")  # as plain text it is none
    assert "" in allowed_texts(may)
    may.advance(TURN)
    feed(may, '[{"name": "weather", "arguments": {"city": "Rome"}}]')
    assert "" in allowed_texts(may)


@pytest.mark.parametrize("layout", [TAGGED, BARE], ids=["hermes", "json"])
def test_json_or_calls(layout: ToolFormat) -> None:
    either = answer(
        layout, text=True, content={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    )
    said = matcher(either)
    feed(said, '{"sum": 5}')
    assert said.ended or "" in allowed_texts(said)
    called = matcher(either)
    feed(called, written(layout, CALLS[0]))
    for text in ("Well", "<b>", "[1]"):
        with pytest.raises(AssertionError):
            feed(matcher(either), text)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"not": {}}}},
        {"properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": {"a": {"minimum": 1e300}}},
        {"$ref": "#/$defs/none"},
        {"type": "object", "minProperties": 3, "maxProperties": 2},
    ],
)
def test_a_schema_that_can_not_be_kept_is_named(schema: dict[str, object]) -> None:
    functions = (Function(name="good", schema=CITY), Function(name="bad", schema=schema, place="tools[1].parameters"))
    with pytest.raises(InvalidRequestError) as refusal:
        grammars().compile_calls(answer(functions=functions))
    assert refusal.value.param == "tools[1].parameters"


def test_the_same_tools_are_compiled_once() -> None:
    assert grammars().compile_calls(answer()) is grammars().compile_calls(answer())
    assert grammars().compile_calls(answer()) is not grammars().compile_calls(answer(parallel=False))
