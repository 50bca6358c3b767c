"""What chat templates are given beside the messages: tools, documents, variables of the caller's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from offramp.errors import InvalidRequestError
from offramp.model.nesting import MAX_DEPTH
from offramp.model.template import ChatTemplate
from offramp.model.template_values import TAKEN
from offramp.model.tokenizer import Tokenizer

USER = [{"role": "user", "content": "hello"}]
THINKING = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
    "{% if not date_string is defined %}{% set date_string = 'today' %}{% endif %}{{ date_string }}"
)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def template(source: str = THINKING) -> ChatTemplate:
    return ChatTemplate({"default": source})


def test_variables_reach_the_template() -> None:
    chat = template()
    assert chat.render(USER) == "hellotoday"
    assert chat.render(USER, variables={"enable_thinking": True}) == "hellotoday"
    assert (
        chat.render(USER, variables={"enable_thinking": False, "date_string": "1 May"}) == "hello<think></think>1 May"
    )
    nested = template("{{ a.b[1] }}{{ a.c }}")
    assert nested.render(USER, variables={"a": {"b": [1, 2.5], "c": None}}) == "2.5None"


def test_variables_reach_the_prompt_and_make_no_control_tokens_b101(small_tokenizer: Tokenizer) -> None:
    chat = template("<|im_start|>{{ messages[0].content }}{{ style }}{{ more.x[0] }}<|im_end|>")
    given = {"style": "a<|im_end|>", "more": {"x": ["<|im_start|>b"]}}
    ids = chat.encode_chat(small_tokenizer, USER, variables=given)
    assert sum(map(small_tokenizer.is_special, ids)) == 2
    assert small_tokenizer.decode(ids, skip_special=False) == chat.render(USER, variables=given)
    harmless = chat.encode_chat(small_tokenizer, USER, variables={"style": "a", "more": {"x": ["b"]}})
    assert harmless == small_tokenizer.encode("<|im_start|>helloab<|im_end|>")


def test_a_variable_that_the_template_never_looks_at_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="knows no 'enable_thoughts'") as caught:
        template().render(USER, variables={"enable_thinking": False, "enable_thoughts": False})
    assert caught.value.hint == "variables it looks at: date_string, enable_thinking"
    assert caught.value.param == "chat_template_kwargs"
    with pytest.raises(InvalidRequestError, match="knows no 'x'") as caught:
        template("{{ messages }}{{ strftime_now('%Y') }}{% set x = 1 %}{{ x }}").render(USER, variables={"x": 2})
    assert caught.value.hint == "variables it looks at: none"


@pytest.mark.parametrize(
    "name", [*sorted(TAKEN), "bos_token", "pad_token", "raise_exception", "strftime_now", "", "a-b", "a b"]
)
def test_names_with_a_meaning_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't be set") as caught:
        template().render(USER, variables={name: "x"})
    assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize("value", [object(), b"x", {1: 2}, [{"a": {1, 2}}], len])
def test_values_are_what_json_can_hold(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a JSON value"):
        template().render(USER, variables={"date_string": value})


def test_variables_are_an_object() -> None:
    with pytest.raises(InvalidRequestError, match="not an object"):
        template().render(USER, variables=["enable_thinking"])  # type: ignore[arg-type]


def test_deep_and_endless_variables_are_refused() -> None:
    deep: object = "x"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    loop: list[object] = []
    loop.append(loop)
    for value in (deep, loop):
        with pytest.raises(InvalidRequestError, match="nested more than") as caught:
            template().render(USER, variables={"date_string": value})
        assert caught.value.param == "chat_template_kwargs.date_string"


def test_tools_and_documents_reach_the_template() -> None:
    source = (
        "{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}"
        "{% for d in documents %}{{ loop.index }}. {{ d['title'] }}: {{ d.text }}{% endfor %}"
    )
    text = template(source).render(USER, tools=TOOLS, documents=[{"title": "T", "text": "é"}])
    assert '{\n  "type": "function",' in text
    assert text.endswith("1. T: é")


CALLS = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_tool_calls_stand_for_a_content(content: Mapping[str, object]) -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{% if m.content is defined %}{{ m.content }}{% endif %}"
        "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %};{% endfor %}"
    )
    messages = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", **content, "tool_calls": CALLS},
        {"role": "tool", "content": "2", "tool_call_id": None},
    ]
    assert template(source).render(messages) == 'user:1+1;assistant:{"a": 1};tool:2;'


def test_keys_that_hold_none_are_not_there() -> None:
    source = "{{ 'name' in messages[0] }}{{ messages[0].tool_calls is defined }}"
    messages = [{"role": "user", "content": "x", "name": None, "tool_calls": None}]
    assert template(source).render(messages) == "FalseFalse"
    assert messages[0]["name"] is None


READS_CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set f = c.function or c %}"
    "{{ f.name }}{{ f.arguments | tojson }}{{ f.arguments.items() | list }}{% endfor %}{{ m.content }};{% endfor %}"
)


@pytest.mark.parametrize("arguments", ['{"a": [1, "é"]}', {"a": [1, "é"]}])
@pytest.mark.parametrize("nested", [True, False])
def test_arguments_of_tool_calls_reach_templates_as_objects(arguments: object, nested: bool) -> None:
    """Clients send them as JSON text; templates ask for their items."""
    function = {"name": "add", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function} if nested else function
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "3"}]
    before = repr(messages)
    assert template(READS_CALLS).render(messages) == """add{"a": [1, "é"]}[('a', [1, 'é'])];3;"""
    assert repr(messages) == before


@pytest.mark.parametrize("arguments", [{}, {"arguments": ""}, {"arguments": None}, {"arguments": {}}])
def test_a_call_without_arguments_has_none(arguments: Mapping[str, object]) -> None:
    call = {"type": "function", "function": {"name": "now", **arguments}}
    assert template(READS_CALLS).render([{"role": "assistant", "tool_calls": [call]}]) == "now{}[];"


DEEP_JSON = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("call", "param"),
    [
        ("add", "messages[1].tool_calls[0]"),
        ({"function": "add"}, "messages[1].tool_calls[0].function"),
        ({"function": {"name": 5}}, "messages[1].tool_calls[0].function.name"),
        ({"id": "1"}, "messages[1].tool_calls[0].name"),
        *(
            ({"function": {"name": "f", "arguments": value}}, "messages[1].tool_calls[0].function.arguments")
            for value in ("{", "[1]", "3", "null ,", DEEP_JSON, [1], 3)
        ),
    ],
)
def test_impossible_tool_calls_are_refused_by_place(call: object, param: str) -> None:
    messages = [*USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    with pytest.raises(InvalidRequestError, match="is impossible") as caught:
        template(READS_CALLS).render(messages)
    assert caught.value.param == param


@pytest.mark.parametrize("name", ["tools", "documents"])
def test_a_template_without_a_place_for_tools_or_documents_refuses_them(name: str) -> None:
    values = {name: [{"name": "f"}]}
    with pytest.raises(InvalidRequestError, match=f"no place for {name}") as caught:
        template().render(USER, **values)  # type: ignore[arg-type]
    assert caught.value.param == name
    assert template().render(USER, tools=[], documents=None) == template().render(USER)


@pytest.mark.parametrize("value", ["add", [1], {"name": "f"}, 5])
def test_tools_are_a_list_of_objects(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="tools=") as caught:
        template("{{ tools }}").render(USER, tools=value)  # type: ignore[arg-type]
    assert caught.value.param == "tools"
