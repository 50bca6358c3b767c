"""Bodies are JSON objects, strictly: whatever else is sent is refused by name, and never takes long."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp import InvalidRequestError
from offramp.serve.strict_json import MAX_DEPTH, MAX_PARTS, MAX_VALUES, parse_object

KEYS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans())
def test_every_json_object_is_read(value: dict[str, object], ascii_only: bool) -> None:
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1,}', "not JSON"),
        (b"[]", "a list, not an object"),
        (b"null", "null, not an object"),
        (b'"x"', "a string"),
        (b"true", "a boolean"),
        (b"7", "a number"),
        (b'{"a": "\xff"}', "not UTF-8 (byte 7)"),
        (b'{"a": 1} x', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_object(body)
    assert message in refusal.value.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"temperature": NaN}', "temperature"),
        (b'{"top_p": Infinity}', "top_p"),
        (b'{"top_p": -Infinity}', "top_p"),
        (b'{"min_p": 1e999}', "min_p"),
        (b'{"a": {"b": [0, -1e999]}}', "a.b[1]"),
        (b'{"n": 1, "seed": 2, "n": 3}', "n"),
        (b'{"logit_bias": {"5": 1, "5": 2}}', "5"),
        (b'{"prompt": "\\ud800"}', "prompt"),
        (b'{"a": ["\\udc00x"]}', "a"),
    ],
)
def test_the_place_is_named(body: bytes, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_object(body)
    assert refusal.value.param == param


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> bytes:
        return b'{"x":' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"

    assert parse_object(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 200, 20_000):
        with pytest.raises(InvalidRequestError, match="deep"):
            parse_object(nested(depth))


def test_brackets_in_strings_are_text() -> None:
    text = '[{"' * 500 + "\\" * 3
    assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"[]" * 1_000_000,
        b'{"a":"' + b"\\" * 1_000_001,
        b'"' * 1_000_001,
        b'{"a":' * 300_000,
        b'{"a":"' + b'\\"' * 500_000,  # each quote could begin a string, had its end been looked for in vain
        b'{"a":"' + b'\\"' * 500_000 + b"\\",
    ],
    ids=["open", "pairs", "backslashes", "quotes", "objects", "escapes", "escapes and a backslash"],
)
def test_hostile_bodies_are_refused_at_once(body: bytes) -> None:
    begun = time.perf_counter()
    with pytest.raises(InvalidRequestError):
        parse_object(body)
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize(
    ("inner", "most"),
    [(b'""', MAX_PARTS), (b"[]", MAX_PARTS), (b"{}", MAX_PARTS), (b"1", MAX_VALUES)],
    ids=["strings", "lists", "objects", "numbers"],
)
def test_parts_are_counted(inner: bytes, most: int) -> None:
    """Making them takes time of everybody; what stands in a string is text."""
    around = 3 if most == MAX_PARTS else 0  # the object, its key, the list
    fits = most - around
    assert len(parse_object(b'{"a":[' + b",".join([inner] * fits) + b"]}")["a"]) == fits  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="the body holds more than"):
        parse_object(b'{"a":[' + b",".join([inner] * (fits + 2)) + b"]}")
    text = (inner * most).replace(b'"', b"'").decode() + ","
    assert parse_object(json.dumps({"a": text * 2}).encode()) == {"a": text * 2}
