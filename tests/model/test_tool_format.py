"""How calls are written is found in the chat template; special tokens in the fixed texts are known by their ids."""

from __future__ import annotations

import pytest

from offramp.errors import InvalidRequestError
from offramp.llm.serving import Serving
from offramp.model.template import ChatTemplate
from offramp.model.tool_format import (
    BARE,
    ENCLOSED,
    FORMATS,
    LISTED,
    NAMED,
    PARAMETERS,
    PREFIXED,
    SPELLED,
    TAGGED,
    ToolFormat,
    shown_ids,
    special_pieces,
)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ tools }}<tool_call>\n{{ call }}\n</tool_call>", "hermes"),
        ("{{ tools }}[TOOL_CALLS] [", "mistral"),
        ("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral-args"),
        ("{{ tools }}<|python_tag|>", "llama3"),
        ("{{ tools }}<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>\n", "qwen3-coder"),
        ("{{ tools }}<|tool|>{{ tools }}<|/tool|>", "phi4"),
        ('{{ tools }} such as functools[{"name": ...}]', "phi4-functools"),
        ("{{ tools }}", "json"),
    ],
)
def test_the_template_tells(template: str, name: str) -> None:
    assert ChatTemplate({"default": template}).tool_format.name == name
    assert ChatTemplate({"default": "<tool_call>", "tool_use": template}).tool_format.name == name


def test_names_are_distinct_and_the_last_fits_all() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    assert FORMATS[-1].signs == ()


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_a_format_may_be_named(layout: ToolFormat) -> None:
    template = ChatTemplate({"default": "{{ tools }}<tool_call>"})
    assert Serving(tool_call_parser=layout.name).tool_format(template) is layout
    assert Serving().tool_format(template) is TAGGED


@pytest.mark.parametrize("name", ["qwen3_coder", "", 5, None])
def test_formats_that_are_not_there_are_refused_by_name(name: object) -> None:
    with pytest.raises(InvalidRequestError, match="tool_call_parser") as refusal:
        Serving(tool_call_parser=name)  # type: ignore[arg-type]
    assert "auto, mistral-args" in refusal.value.hint


def test_special_tokens_in_fixed_texts() -> None:
    specials = [(5, "[TOOL_CALLS]"), (6, "[ARGS]"), (7, "[TOOL"), (8, "")]
    assert special_pieces("a[TOOL_CALLS][b[TOOL", specials) == ["a", 5, "[b", 7]
    assert special_pieces("", specials) == []
    assert special_pieces("plain", []) == ["plain"]
    assert shown_ids(NAMED, specials) == {5, 6}
    assert shown_ids(LISTED, specials) == {5}
    assert shown_ids(TAGGED, specials) == set()
    assert shown_ids(PARAMETERS, [(9, "<|python_tag|>")]) == {9}


def test_the_head_holds_the_name() -> None:
    assert TAGGED.head_of("f") == '{"name": "f", "arguments": '
    assert NAMED.head_of("f") == "f[ARGS]"
    assert SPELLED.head_of("f") == "<function=f>\n"
    assert [each for each in FORMATS if each.bare] == [PARAMETERS, BARE]
    assert [each for each in FORMATS if each.tags] == [SPELLED]
    assert TAGGED.closing == SPELLED.closing == "</tool_call>"
    assert ENCLOSED.closing == "<|/tool_call|>"
    assert BARE.closing == LISTED.closing == PREFIXED.closing == ""
