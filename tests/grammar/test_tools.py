"""Grammars of answers with calls: what they bind, what they leave open, what can't be compiled."""

from __future__ import annotations

import json
import random

import pytest

from offramp.core import Matcher
from offramp.errors import InvalidRequestError
from offramp.grammar import Function, ToolAnswer
from offramp.llm.tool_reader import ToolReader, read_whole
from offramp.model.tool_format import BARE, FORMATS, LISTED, SPELLED, TAG_CLOSE, TAGGED, ToolFormat
from offramp.testing.models import TURN, chat_tokenizer
from tests.grammar.grammars import allowed_ids, allowed_texts, feed, grammars, text_of
from tests.grammar.schemas import is_valid, nested_definitions_are_shared, random_object
from tests.grammar.tagged import calls_in

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
    return calls_in(layout, *((name, each) for each in arguments))


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


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_whatever_is_allowed_is_read_as_calls_that_fit(layout: ToolFormat, seed: int) -> None:
    """Random tokens out of those that may come."""
    rng = random.Random(seed)
    schemas = {name: nested_definitions_are_shared(random_object(rng)) for name in ("first", "second")}
    functions = tuple(Function(name=name, schema=schema) for name, schema in schemas.items())
    walking, ids = matcher(answer(layout, functions=functions)), list[int]()
    while not walking.ended and len(ids) < 3000:
        end = [token for token in allowed_ids(walking) if chat_tokenizer().token_text(token) == "<|im_end|>"]
        ids.append(end[0] if end else rng.choice(allowed_ids(walking)))
        walking.advance(ids[-1])
    assert walking.ended
    text = text_of(ids)
    content, calls = read_whole(ToolReader(layout, schemas, exact=True), text)
    assert content == ""
    assert calls
    assert all(is_valid(call.arguments, schemas[call.name]) for call in calls), (text, calls)
    told = read_whole(ToolReader(layout, schemas, exact=False), text)[1]
    assert [(call.name, json.loads(call.arguments)) for call in told] == [
        (call.name, json.loads(call.arguments)) for call in calls
    ]


def tags(schema: dict[str, object], *, bound: bool = True) -> Matcher:
    """Right behind the head of a call."""
    functions = (Function(name="f", schema=schema if bound else {"type": "object"}),)
    begun = matcher(answer(SPELLED, functions=functions, parallel=False))
    feed(begun, SPELLED.begin + SPELLED.head_of("f"))
    return begun


TYPED: dict[str, object] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "minLength": 2, "maxLength": 40},
        "kind": {"$ref": "#/$defs/kind"},
        "count": {"type": "integer", "minimum": 10},
        "day": {"type": "string", "pattern": "^[0-9]{2}$"},
    },
    "required": ["code", "count", "other"],
    "$defs": {"kind": {"enum": ["town", "townhouse"]}},
}


def test_arguments_in_tags_stand_in_the_order_of_the_schema() -> None:
    some = tags(TYPED)
    feed(some, '<parameter=code>\nif a < b:\n    print("x")\n</parameter>\n')
    assert allowed_texts(some) == {"<"}
    feed(some, "<parameter=kind>\ntown")
    assert allowed_texts(some) == {"h", "\n"}
    feed(some, "\n</parameter>\n<parameter=count>\n1")
    assert "5" in allowed_texts(some)
    assert "\n" not in allowed_texts(some)  # 1 is no number from 10 on
    feed(
        some, '5\n</parameter>\n<parameter=day>\n"07"\n</parameter>\n<parameter=other>\n[1]\n</parameter>\n</function>'
    )
    assert text_of(list(some.forced(99))) == "\n</tool_call>"


@pytest.mark.parametrize(
    "begun",
    [
        "<parameter=kind>",
        "</function>",
        "<parameter=code>\na\n</parameter>",
        f"<parameter=code>\n{'a' * 41}",
        "<parameter=code>\n</parameter>",
        f"<parameter=code>\nabc{TAG_CLOSE}<parameter=count>\n5\n",
        f"<parameter=code>\nabc{TAG_CLOSE}<parameter=kind>\ncity",
        f"<parameter=code>\nabc{TAG_CLOSE}<parameter=code>",
        f"<parameter=code>\nabc{TAG_CLOSE}<parameter=count>\n10{TAG_CLOSE}<parameter=day>\n07",
        f"<parameter=code>\nabc{TAG_CLOSE}<parameter=count>\n10{TAG_CLOSE}</function>",
    ],
)
def test_arguments_in_tags_fit_the_schema(begun: str) -> None:
    with pytest.raises(AssertionError):
        feed(tags(TYPED), begun)


def test_a_value_ends_where_it_is_read_to_end() -> None:
    some = tags({"properties": {"text": {"type": "string", "minLength": 30}}, "required": ["text"]})
    feed(some, "<parameter=text>\n</b>\n</parameter")
    assert ">" not in allowed_texts(some)
    start = tags({"properties": {"text": {"type": "string", "minLength": 30}}, "required": ["text"]})
    feed(start, "<parameter=text>\n</parameter")
    assert ">" not in allowed_texts(start)


def test_shared_schemas_are_those_of_the_whole() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}, "size": {"$ref": "#/$defs/size"}},
        "required": ["size"],
        "additionalProperties": False,
    }
    own = {"$ref": "#/$defs/node", "$defs": {"size": {"type": "string"}}}  # nothing can refer to these
    shared = {"node": node, "size": {"type": "integer"}}
    for tree in ({"$ref": "#/$defs/node"}, own):
        some = tags({"properties": {"tree": tree}, "required": ["tree"], "$defs": shared})
        feed(some, '<parameter=tree>\n{"next": {"size": 1}, "size": ')
        assert '"' not in allowed_texts(some)
        feed(some, f"2}}{TAG_CLOSE}</function>")


def test_parameters_without_names() -> None:
    free = tags({}, bound=False)
    feed(free, f'<parameter=any name>\nwell "{TAG_CLOSE}<parameter=b>\n{TAG_CLOSE}</function>')
    none = tags({"type": "object", "properties": {}, "additionalProperties": False})
    assert text_of(list(none.forced(99))).startswith("</function>")
    numbers = tags({"type": "object", "additionalProperties": {"type": "integer"}})
    feed(numbers, f"<parameter=a>\n5{TAG_CLOSE}<parameter=b>\n")
    assert '"' not in allowed_texts(numbers)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}, "minProperties": 1},
        {"properties": {"a": {}}, "patternProperties": {"b": {}}},
        {"properties": {"a>": {}}},
        {"properties": {"": {}}},
        {"properties": {"a": {"not": {}}}},
        {"properties": {"a": {"type": "object", "properties": {"b": {"$ref": "#"}}}}},
        {"properties": {"a": {"type": "integer"}, "b": {"items": {"$ref": "#/properties/a"}}}},
    ],
)
def test_what_tags_can_not_say_is_refused_by_its_place(schema: dict[str, object]) -> None:
    functions = (Function(name="good", schema=CITY), Function(name="bad", schema=schema, place="tools[1].parameters"))
    with pytest.raises(InvalidRequestError) as refusal:
        grammars().compile_calls(answer(SPELLED, functions=functions))
    assert refusal.value.param == "tools[1].parameters"
