"""Compiling: what is asked for becomes a grammar, and what can't be done is refused by its place, and soon."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from offramp.core import StructuredOutputsParams
from offramp.errors import InvalidRequestError
from offramp.grammar.schema import unending
from tests.grammar.grammars import allowed_ids, allowed_texts, compiled, feed, text_of, tokens

SECONDS = 5.0


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"k{index}": {"type": "integer"} for index in range(count)}}


LOOP = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "contradiction": ({"json": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "at #: Unsatisfiable"),
    "range": (
        {
            "json": {
                "type": "object",
                "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}},
                "required": ["a"],
            }
        },
        "#",
    ),
    "keyword": ({"json": {"properties": {"a": {"items": {"not": {}}}}}}, "at #/properties/a/items: Unimplemented"),
    "unique": ({"json": {"properties": {"a/b": {"uniqueItems": True}}}}, "at #/properties/a~1b: Unimplemented"),
    "in $defs": ({"json": {"$defs": {"x": {"not": {}}}, "$ref": "#/$defs/x"}}, "at #/$defs/x: Unimplemented"),
    "type": ({"json": {"properties": {"a": {"type": "strin"}}}}, "at #/properties/a: Invalid type"),
    "remote": ({"json": {"$ref": "http://127.0.0.1:9/x.json"}}, "retrieving it failed"),
    "file": ({"json": {"$ref": "file:///etc/passwd"}}, "retrieving it failed"),
    "no such": ({"json": {"$ref": "#/nope"}}, "does not exist"),
    "itself": ({"json": {"$ref": "#"}}, "without end"),
    "loop": ({"json": LOOP}, "# needs a value of itself"),
    "lenient": ({"json": {"x-guidance": {"lenient": True}, "not": {}}}, "#/x-guidance"),
    "deep": ({"json": nested(100)}, "nested"),
    "deeper": ({"json": "[" * 60_000}, "not JSON"),
    "wide": ({"json": wide(2000)}, "the JSON schema"),
    "long": ({"json": {"const": "ab c" * 20_000}}, "characters"),
    "bound": ({"json": {"const": "ab c" * 15_000}}, "bytes"),
    "no object": ({"json": "[1]"}, "json=[1]"),
    "multiple": ({"json": {"items": {"multipleOf": 1000000}}}, "at #/items: multipleOf"),
    "multiple of less": ({"json": {"items": {"multipleOf": -1}}}, "at #/items: multipleOf=-1 is not above 0"),
    "multiple of nothing": ({"json": {"multipleOf": 0.0}}, "multipleOf=0.0 is not above 0"),
    "multiples": ({"json": {"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}}, "at #/allOf/1: multipleOf"),
    "odd multiple": ({"json": {"multipleOf": True}}, "the JSON schema"),
    "infinite": ({"json": {"maximum": float("inf")}}, "JSON"),
    "1e999": ({"json": '{"maximum": 1e999}'}, "the JSON schema"),
    "half a character": ({"json": {"const": "\ud800"}}, "the JSON schema"),
    "half": ({"regex": "a\ud800"}, "surrogate"),
    "half choice": ({"choice": ["a\ud800"]}, "surrogate"),
    "half grammar": ({"grammar": 'start: "\ud800"'}, "surrogate"),
    "huge": ({"json": {"enum": [[-1e308], False]}}, "at #/enum/0/0: -1e+308"),
    "tiny": ({"json": {"properties": {"a": {"minimum": 1e-300}}}}, "at #/properties/a/minimum"),
    "large": ({"json": {"type": "integer", "minimum": 10**19, "maximum": 10**20}}, "at #/m"),
    "no json": ({"json": "{"}, "not JSON"),
    "no text": ({"json": {"const": object()}}, "JSON"),
    "look-ahead": ({"regex": "(?=a)b"}, "look-ahead"),
    "open": ({"regex": "(ab"}, "unclosed"),
    "brackets": ({"regex": "(" * 30_000 + "a" + ")" * 30_000}, "the regular expression"),
    "repeats": ({"regex": "((a{1000}){1000}){1000}"}, "the regular expression"),
    "nothing": ({"regex": "a[^\\s\\S]"}, "it leads to no answer"),
    "grammar": ({"grammar": 'start: "'}, "the grammar"),
    "no rule": ({"grammar": "start: other"}, "other"),
    "empty loop": ({"grammar": "start: start"}, "it leads to no answer"),
    "endless": ({"grammar": 'start: "a" start'}, "the grammar"),
    "nest": ({"grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000}, "nested"),
    "rules": ({"grammar": "\n".join(f"r{n}: r{n + 1}" for n in range(3000))}, "colons"),
    "embedded": ({"grammar": 'start: %json {"enum": [-1e308]}'}, "%json"),
    "own options": ({"grammar": '%llguidance {"no_forcing": false}\nstart: "a"'}, "%llguidance"),
    "within": ({"grammar": 'start: % lark {start: "a"}'}, "% lark"),
    "guidance": ({"json": {"type": "array", "x-guidance": {"key_separator": "="}}}, "#/x-guidance"),
    "gbnf": ({"grammar": 'root ::= "a" | nope'}, "nope"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_its_place_within_seconds(name: str) -> None:
    asked, words = BAD[name]
    [way] = asked
    begin = time.process_time()  # others may need the machine too
    with pytest.raises(InvalidRequestError) as failure:
        compiled(**asked)
    assert time.process_time() - begin < SECONDS
    assert words in failure.value.message
    assert failure.value.param == f"structured_outputs.{way}"
    assert failure.value.hint
    assert len(failure.value.message) < 600


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({}, ""),
        ({"regex": "a", "choice": ["b"]}, ""),
        ({"json_object": True, "json": {}}, ""),
        ({"regex": ""}, ".regex"),
        ({"regex": 5}, ".regex"),
        ({"grammar": ""}, ".grammar"),
        ({"json": 5}, ".json"),
        ({"choice": []}, ".choice"),
        ({"choice": "ab"}, ".choice"),
        ({"choice": ["a", ""]}, ".choice"),
        ({"choice": ["a", 5]}, ".choice"),
        ({"choice": ["a"] * 1025}, ".choice"),
        ({"json_object": 1}, ".json_object"),
        ({"regex": "a", "whitespace_pattern": " "}, ".whitespace_pattern"),
        ({"regex": "a", "disable_any_whitespace": True}, ".disable_any_whitespace"),
        ({"json": {}, "disable_any_whitespace": True, "whitespace_pattern": " "}, ".whitespace_pattern"),
    ],
)
def test_impossible_values_are_refused_by_name(asked: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        StructuredOutputsParams(**asked)
    assert failure.value.param == f"structured_outputs{param}"


def test_recursion_with_an_end_is_welcome() -> None:
    tree = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    feed(compiled(json=tree, disable_any_whitespace=True).matcher(), '{"next":{"next":null}}')
    open_list = {"type": "array", "items": {"$ref": "#"}}
    feed(compiled(json=open_list, disable_any_whitespace=True).matcher(), "[[],[[]]]")


@pytest.mark.parametrize("factors", [[0.01, 5], [1000, 0.001], [7919], [2, 3, 5, 7], [1e-5]])
def test_usual_multiples_are_fine(factors: list[float]) -> None:
    begin = time.perf_counter()
    compiled(json={"anyOf": [{"type": "number", "multipleOf": factor} for factor in factors]}).matcher().allowed()
    assert time.perf_counter() - begin < SECONDS


def test_long_chains_of_references_are_followed_soon() -> None:
    for order in (1, -1):
        definitions = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}]} for number in range(900)[::order]}
        begin = time.perf_counter()
        assert unending({"$defs": {**definitions, "d900": {"type": "null"}}, "$ref": "#/$defs/d0"}) is None
        assert unending({"$defs": {**definitions, "d900": {"$ref": "#/$defs/d7"}}, "$ref": "#/$defs/d0"}) is not None
        assert time.perf_counter() - begin < SECONDS


@pytest.mark.parametrize(
    ("schema", "ends"),
    [
        ({"$ref": "#"}, False),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, True),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, False),
        ({"type": "array", "items": {"$ref": "#"}}, True),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, False),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": {"$ref": "#"}, "minItems": 1}, True),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, True),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, False),
        ({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, True),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, True),  # 5 is valid
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["b"]}, True),
        ({"$ref": "#/nowhere"}, True),  # for others to refuse
    ],
)
def test_recursion_ends_or_not(schema: dict[str, Any], ends: bool) -> None:
    assert (unending(schema) is None) == ends


def test_whitespace_in_json() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    spaced = compiled(json=schema).matcher()
    feed(spaced, '{\n  "a": 1 \n}')
    assert spaced.ended
    endless = compiled(json=schema).matcher()
    feed(endless, "{" + 31 * "\n")
    feed(endless, "\n")
    assert allowed_texts(endless) == {'"'}
    tight = compiled(json=schema, disable_any_whitespace=True).matcher()
    assert tight.forced(99) == tuple(tokens('{"a":1}'))
    own = compiled(json=schema, whitespace_pattern=r"[\t ]{2}").matcher()
    feed(own, '{\t "a"\t\t:  1 \t}')


@pytest.mark.parametrize("pattern", [" ", r"[ ]?", r"[\n\t ]*", r"[\x20\x0A\x0D\x09]{1,20}", "(?:\r?\n|\t)+", " {0,3}"])
def test_whitespace_of_ones_own(pattern: str) -> None:
    assert compiled(json={"type": "object"}, whitespace_pattern=pattern)


@pytest.mark.parametrize("pattern", ["~", '"*', "[^a]", r"\s", ".", "[ -~]", r"\x21", "5", " {1,b}", " " * 70_000])
def test_whitespace_that_is_none_is_refused(pattern: str) -> None:
    """With a quote among it, nothing could ever end it."""
    with pytest.raises(InvalidRequestError) as failure:
        compiled(json={"type": "object"}, whitespace_pattern=pattern)
    assert failure.value.param == "structured_outputs.whitespace_pattern"
    assert failure.value.hint


ENDLESS_LEXEMES = [
    'start: A "ab"\nA: /a+/',
    'start: "{" "\\"a\\"" "}"\n%ignore /"*/',
    'start: /[b-d]{9}/ A "ab"\nA: "a"*',
    "start: /a{1,}/ /ab/",
]


def test_lexemes_that_swallow_what_must_follow_them_take_no_time() -> None:
    """Each goes on for ever, and so would whoever looks for its end; in a process that can be killed."""
    program = f"""
from offramp.errors import InvalidRequestError
from tests.grammar.grammars import allowed_ids, compiled
for text in {ENDLESS_LEXEMES!r}:
    try:
        matcher = compiled(grammar=text).matcher()
    except InvalidRequestError:
        continue
    for _ in range(40):
        assert matcher.forced(16) == ()
        matcher.advance(allowed_ids(matcher)[0])
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_a_bounded_grammar_is_looked_ahead_in() -> None:
    matcher = compiled(grammar='start: "yes, " /[a-c]{2,3}/ | "yes; no"').matcher()
    assert text_of(list(matcher.forced(99))).startswith("yes")


@pytest.mark.parametrize("pattern", ["a{1000}{1000}x", "((a{100}){100}){100}x", "a{18000}", "b" * 18_000])
def test_a_long_text_without_a_choice_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequestError, match="binds the answer to more than 16384 bytes"):
        compiled(regex=pattern)


def test_a_fixed_text_of_some_length_is_written_to_its_end() -> None:
    matcher = compiled(regex="a{12000}b").matcher()
    written: list[int] = []
    while not matcher.ended:
        token = matcher.forced(1)[0]
        if len(written) % 500 == 0:
            assert token in allowed_ids(matcher)
        matcher.advance(token)
        written.append(token)
    assert text_of(written) == "a" * 12000 + "b"


def test_choices_are_texts_not_patterns() -> None:
    texts = ['say "no"', "a|b", "back\\slash", "städte", "two\nlines", "tab\t\x01", "/x/", "é"]
    for text in texts:
        matcher = compiled(choice=texts).matcher()
        feed(matcher, text)
        assert matcher.ended


@pytest.mark.parametrize("grammar", ['start: "a" ("b" | "c")+ "d"', 'root ::= "a" [bc]+ "d"'])
def test_both_kinds_of_grammar(grammar: str) -> None:
    matcher = compiled(grammar=grammar).matcher()
    feed(matcher, "abcbd")
    assert matcher.ended


def test_large_grammars_are_not_kept_for_long() -> None:
    def large(number: int) -> dict[str, object]:
        return {"title": f"{number} {'x' * 60_000}", "type": "null"}

    first = compiled(json=large(0))
    assert compiled(json=large(0)) is first
    small = compiled(json={"type": "null"})
    for number in range(1, 9):
        compiled(json=large(number))
        assert compiled(json={"type": "null"}) is small
    assert compiled(json=large(0)) is not first


def test_a_json_text_is_as_good_as_a_mapping_and_both_are_kept() -> None:
    assert compiled(json='{"type": "integer"}') is compiled(json={"type": "integer"})
    assert compiled(json={"type": "integer"}) is not compiled(json={"type": "integer"}, disable_any_whitespace=True)
    assert compiled(regex="ab") is compiled(regex="ab")
    first = compiled(regex="first")
    for index in range(70):
        compiled(regex=f"x{index}")
    assert compiled(regex="first") is not first
