"""Arguments in tags become JSON of the kinds that the schema names, and templates write them back the same."""

from __future__ import annotations

import json

import pytest

from offramp.llm.tagged_arguments import TaggedArguments
from offramp.llm.tool_reader import ToolReader, read_whole
from offramp.model.template import ChatTemplate
from offramp.model.tool_format import SPELLED

TAIL = "</function>"
SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "colour": {"$ref": "#/$defs/Colour", "description": "which"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "day": {"type": "string", "format": "date"},
        "list": {"type": "array", "items": {"type": "string"}},
        "free": {},
    },
    "additionalProperties": {"type": "string"},
    "$defs": {"Colour": {"enum": ["red", "5"], "type": "string"}},
}


def value(name: str, text: str) -> object:
    reader = TaggedArguments(SCHEMA, TAIL)
    told = reader.push(f"<parameter={name}>\n{text}\n</parameter>\n{TAIL}rest")
    assert reader.ended
    assert reader.rest == f"{TAIL}rest"
    [(key, found)] = json.loads(told).items()
    assert key == name
    return found


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", ' "a"\n\n', ' "a"\n\n'),
        ("text", "", ""),
        ("text", "\n", "\n"),
        ("text", "<parameter=x>", "<parameter=x>"),
        ("text", "a</parameter>b", "a</parameter>b"),
        ("colour", "5", "5"),
        ("count", "5", 5),
        ("count", " 5 ", 5),
        ("count", "five", "five"),
        ("flag", "true", True),
        ("flag", "False", False),
        ("maybe", "None", None),
        ("maybe", "null", None),
        ("maybe", "5", "5"),
        ("maybe", "well", "well"),
        ("maybe", '"well"', "well"),
        ("either", "5", 5),
        ("either", "true", "true"),
        ("day", "2026", "2026"),
        ("day", '"2026-11-30"', "2026-11-30"),
        ("list", '["a",\n "b"]', ["a", "b"]),
        ("list", "NaN", "NaN"),
        ("free", "5", 5),
        ("free", "{x}", "{x}"),
        ("unknown", "5", "5"),
    ],
)
def test_values_are_of_the_kind_that_the_schema_names(name: str, text: str, wanted: object) -> None:
    found = value(name, text)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_parameter_counts_once() -> None:
    twice = "<parameter=text>\na\n</parameter>\n<parameter=text>\nb\n</parameter>\n<parameter=count>1</parameter>"
    reader = TaggedArguments(SCHEMA, TAIL)
    assert reader.push(twice + TAIL) == '{"text": "a", "count": 1}'


def test_strings_are_told_as_they_come() -> None:
    reader = TaggedArguments(SCHEMA, TAIL)
    assert reader.push("<parameter=text>\n") == '{"text": "'
    pieces = ("a", "b\n", "</para", "x", "\n</parameter", ">")
    assert [reader.push(piece) for piece in pieces] == ["a", "b", "", "\\n</parax", "", '"']
    assert not reader.ended
    assert reader.push("\n</fun") == ""
    assert reader.push("ction>") == "}"


@pytest.mark.parametrize("text", ["x", "<parameter=a\nb>", "</parameter>", "<parameter=a>1</parameter>x"])
def test_what_is_no_tag_breaks_it(text: str) -> None:
    reader = TaggedArguments(SCHEMA, TAIL)
    reader.push(text)
    assert reader.broken
    assert reader.rest == ""


TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool }}{% endfor %}{% for m in messages %}{% for call in m.tool_calls %}"
    "<tool_call>\n<function={{ call.function.name }}>\n{% for key, value in call.function.arguments|items %}"
    "<parameter={{ key }}>\n{{ value if value is string else value|tojson }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{{ '' if loop.last else '\n' }}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_template_writes_is_read_as_it_was(exact: bool) -> None:
    chat = ChatTemplate({"default": TEMPLATE})
    assert chat.tool_format is SPELLED
    arguments = {"text": 'if a:\n  "b"\n', "count": 3, "list": ["x", "\n</parameter>\n"], "maybe": None, "flag": True}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    written = chat.render([{"role": "assistant", "content": "", "tool_calls": [call, call]}])
    content, calls = read_whole(ToolReader(SPELLED, {"f": SCHEMA}, exact=exact), written)
    assert content == ""
    assert [json.loads(each.arguments) for each in calls] == [arguments, arguments]
