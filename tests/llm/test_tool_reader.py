"""Calls are cut out of answers, the same however the text comes in pieces; what is no call stays text."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from offramp.llm.json_end import JsonEnd
from offramp.llm.tool_reader import CallArguments, CallBegins, Part, ToolReader, call_id, read_whole
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
)
from tests.grammar.tagged import calls_in

FUNCTIONS: dict[str, dict[str, object]] = {"f": {}, "ff": {"properties": {"a": {"type": "string"}}}, "g": {}}
Read = tuple[str, list[tuple[str, str]]]


def gathered(parts: list[Part]) -> Read:
    """Content and calls; every call begins before its arguments come."""
    content, calls = "", list[tuple[str, str]]()
    for part in parts:
        if isinstance(part, str):
            content += part
        elif isinstance(part, CallBegins):
            assert part.index == len(calls)
            calls.append((part.name, ""))
        else:
            assert isinstance(part, CallArguments)
            assert part.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + part.text)
    return content, calls


def read(layout: ToolFormat, pieces: list[str], *, exact: bool = False) -> Read:
    reader = ToolReader(layout, FUNCTIONS, exact=exact)
    parts = [part for piece in pieces for part in reader.push(piece)]
    parts += reader.push("", last=True)
    assert reader.num_calls == len(gathered(parts)[1])
    return gathered(parts)


def cuts(text: str, rng: random.Random) -> list[str]:
    places = sorted(rng.sample(range(len(text) + 1), rng.randint(0, min(9, len(text)))))
    return [text[start:stop] for start, stop in pairwise([0, *places, len(text)])]


F = ("f", '{"a": 1}')
G = ("g", "{}")
TRICKY = '{"a": "</tool_call>}{\\"}"}'
WRITTEN = '{"name": "f", "arguments": {"a": 1}}'
SPELLED_A = "<parameter=a>\n1\n</parameter>"
CASES: list[tuple[ToolFormat, str, Read]] = [
    (TAGGED, 'Sure:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', ("Sure:", [F])),
    (
        TAGGED,
        '<tool_call>{"arguments":{"a":1},"name":"f"}</tool_call>\n<tool_call>{"name":"g"}</tool_call>\n',
        ("", [F, G]),
    ),
    (TAGGED, '<tool_call>[{"name":"f","arguments":{"a":1}}, {"name":"g","parameters":{}}]</tool_call>', ("", [F, G])),
    (TAGGED, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call> and so on ', ("and so on ", [F])),
    (TAGGED, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}', ("", [F])),  # the tag behind it forgotten
    (TAGGED, f'<tool_call>{{"name": "f", "arguments": {TRICKY}}}</tool_call>', ("", [("f", TRICKY)])),
    (TAGGED, '<tool_call>{broken}<tool_call>{"name": "g", "arguments": {}}</tool_call>', ("<tool_call>{broken}", [G])),
    (LISTED, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]', ("", [F, G])),
    (LISTED, 'Well. [TOOL_CALLS][{"name":"g","arguments":{},"id":"abcdefghi"}]', ("Well.", [G])),
    (NAMED, 'Well.[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS] {}', ("Well.", [F, G])),
    (PARAMETERS, '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', ("", [F, G])),
    (PARAMETERS, '\n<|python_tag|>{"name": "f", "arguments": {"a": 1}}\n', ("", [F])),
    (BARE, '{"name": "g", "arguments": {}} That was it; {"name": "g"}', ('That was it; {"name": "g"}', [G])),
    (ENCLOSED, f"Well.<|tool_call|>[{WRITTEN}, {WRITTEN}]<|/tool_call|>", ("Well.", [F, F])),
    (ENCLOSED, f"<|tool_call|>{WRITTEN}", ("", [F])),
    (PREFIXED, f"functools[{WRITTEN}]", ("", [F])),
    (PREFIXED, f"Use functools: functools [{WRITTEN}] ", ("Use functools:", [F])),
    (SPELLED, f"Sure:\n<tool_call>\n<function=f>\n{SPELLED_A}\n</function>\n</tool_call>", ("Sure:", [F])),
    (SPELLED, f"<tool_call>\n<function=f>\n{SPELLED_A}\n</function>", ("", [F])),  # the outer tag forgotten
    (
        SPELLED,
        "<tool_call><function=f> <parameter=a>1</parameter> </function></tool_call>\n"
        "<tool_call>\n<function=g>\n</function>\n</tool_call> and so on",
        ("and so on", [F, G]),
    ),
    (
        SPELLED,
        '<tool_call>\n<function=ff>\n<parameter=a>\nx</parameter>\n\n"\t5\n</parameter>\n</function>\n</tool_call>',
        ("", [("ff", '{"a": "x</parameter>\\n\\n\\"\\t5"}')]),
    ),
    (SPELLED, f"<tool_call>\n<function=f>\n{SPELLED_A}{SPELLED_A}</function></tool_call>", ("", [F])),
]
NO_CALLS = [
    (TAGGED, ""),
    (TAGGED, "  two\n\n lines \n"),
    (TAGGED, " \n"),
    (TAGGED, "a <tool"),
    (TAGGED, "a <tool_call> b"),
    (TAGGED, "a <tool_call>"),
    (TAGGED, 'a <tool_call>\n{"name": "f", "arguments": {"a": '),
    (TAGGED, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> b'),
    (TAGGED, '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>'),
    (TAGGED, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>'),
    (TAGGED, '<tool_call>{"name": "f", "arguments": "{"}</tool_call>'),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"a": ' + "1" * 5000 + "}}</tool_call>"),
    (TAGGED, '<tool_call>{"name": "f", "arguments": ' + '{"a": ' * 3000 + "1" + "}" * 3000 + "}</tool_call>"),
    (TAGGED, "<tool_call>[]</tool_call>"),
    (TAGGED, '<tool_call>[{"name": "f"}, 5]</tool_call>'),
    (LISTED, "[TOOL_CALLS] none"),
    (NAMED, '[TOOL_CALLS]h[ARGS]{"a": 1}'),
    (NAMED, "[TOOL_CALLS]f[ARGS][1]"),
    (NAMED, "[TOOL_CALLS]f"),
    (PARAMETERS, '{"answer": 5} is what I say'),
    (PARAMETERS, 'Say {"name": "f", "parameters": {}}'),
    (PARAMETERS, "{ never closed"),
    (PARAMETERS, "  <|python"),
    (PARAMETERS, "<|python_tag|>print(1)"),
    (ENCLOSED, "a <|tool_call|>[1]<|/tool_call|>"),
    (PREFIXED, "from functools import cache"),
    (PREFIXED, "functools[cache]"),
    (PREFIXED, "functools"),
    (SPELLED, f"<tool_call>{WRITTEN}</tool_call>"),
    (SPELLED, "a <tool_call>"),
    (SPELLED, "<tool_call>\n<function=f"),
    (SPELLED, "<tool_call>\n<function=h>\n</function>\n</tool_call> b"),
    (SPELLED, "<tool_call>\n<function=f>\nWell.</function></tool_call> b"),
    (SPELLED, "<tool_call>\n<function=f>\n<parameter=a\n>1</parameter></function>"),
    (SPELLED, f"<tool_call>\n<function=f>\n{SPELLED_A}"),
    (SPELLED, "<tool_call>\n<function=f>\n<parameter=a>\n1"),
    (SPELLED, f"<tool_call>\n<function=f>\n{SPELLED_A.replace('1', '1e999')}</function>"),
]


@pytest.mark.parametrize(("layout", "text", "wanted"), CASES)
def test_calls_are_found(layout: ToolFormat, text: str, wanted: Read) -> None:
    assert read(layout, [text]) == wanted


@pytest.mark.parametrize(("layout", "text"), NO_CALLS)
def test_what_is_no_call_stays_text(layout: ToolFormat, text: str) -> None:
    assert read(layout, [text]) == (text, [])


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_pieces_change_nothing(layout: ToolFormat) -> None:
    rng = random.Random(1)
    texts = [text for own, text, _ in CASES if own is layout] + [text for own, text in NO_CALLS if own is layout]
    for text in texts:
        whole = read(layout, [text])
        for _ in range(20):
            pieces = cuts(text, rng)
            assert read(layout, pieces) == whole, pieces
        if len(text) < 200:
            assert read(layout, list(text)) == whole


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.name for layout in FORMATS])
def test_what_a_grammar_wrote_is_told_as_it_comes(layout: ToolFormat) -> None:
    rng = random.Random(2)
    arguments = '{"a": "}]\\"", "b": [1, {}]}'
    text = ("" if layout.bare else "Well. ") + calls_in(layout, ("ff", arguments), ("g", arguments))
    said = "" if layout.bare else "Well."
    assert read(layout, [text], exact=True) == (said, [("ff", arguments), ("g", arguments)])
    assert read(layout, [text]) == (said, [("ff", arguments), ("g", arguments)])  # and others can read it
    for size in range(len(text)):
        cut = read(layout, [text[:size]], exact=True)
        assert read(layout, cuts(text[:size], rng), exact=True) == cut
        content, begun = cut
        assert not begun or content == said
        assert all(arguments.startswith(each) for _, each in begun)
    reader = ToolReader(layout, FUNCTIONS, exact=True)
    told = [part for character in text for part in reader.push(character)]
    pieces = sum(isinstance(part, CallArguments) for part in told)
    assert pieces == 2 * len(arguments) if not layout.tags else pieces > 8


def test_text_beside_a_grammar_of_bare_calls() -> None:
    assert read(BARE, list('{"answer": 5}'), exact=True) == ('{"answer": 5}', [])
    assert read(BARE, ["Well, {}"], exact=True) == ("Well, {}", [])


def test_text_is_not_held_for_long() -> None:
    reader = ToolReader(TAGGED, FUNCTIONS, exact=False)
    assert reader.push("one") == ["one"]
    assert reader.push(" two ") == [" two"]
    assert reader.push("<") == []
    assert reader.push("b>") == [" <b>"]


def test_half_a_character_is_written_as_an_escape() -> None:
    _, calls = read(TAGGED, ['<tool_call>{"name": "f", "arguments": {"a": "\\ud800", "é": 1}}</tool_call>'])
    assert calls[0][1].isascii()
    assert json.loads(calls[0][1]) == {"a": "\ud800", "é": 1}


def test_a_long_call_takes_no_long_time() -> None:
    body = json.dumps({"name": "f", "arguments": {"a": [{"b": "{[\\"}] * 4000}})
    text, pieces = f"<tool_call>{body}</tool_call>", 3000
    step = len(text) // pieces + 1
    content, calls = read(TAGGED, [text[start : start + step] for start in range(0, len(text), step)])
    assert content == ""
    assert json.loads(calls[0][1]) == json.loads(body)["arguments"]


def test_whole_calls_have_ids() -> None:
    content, calls = read_whole(ToolReader(TAGGED, FUNCTIONS, exact=False), CASES[1][1])
    assert content == ""
    assert [(call.name, call.arguments) for call in calls] == [F, G]
    assert len({call.id for call in calls}) == 2
    assert all(call.id.startswith("call_") for call in calls)
    assert len(call_id(9)) == 9
    assert call_id(9).isalnum()


def test_where_json_ends() -> None:
    text = '{"a": "}\\"", "b": [{}, "\\\\"]} rest'
    for step in (1, 2, 3, len(text)):
        end, before = JsonEnd(), 0
        for start in range(0, len(text), step):
            size = end.find(text[start : start + step])
            if size is not None:
                assert text[: before + size] == text.removesuffix(" rest")
                break
            before += step
        else:
            pytest.fail("no end")
    assert JsonEnd().find('{"a": [') is None
