"""YAML that people write is read as they mean it, or refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.errors import InvalidRequestError
from offramp.yaml_file import MAX_BYTES, read_mapping


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return read_mapping(path, hint="write it well")


def test_values_are_what_they_look_like(tmp_path: Path) -> None:
    text = "draft: off\nwhy: no\nold: yes\nnew: true\nlen: 16\nrisk: 0.05\nsmall: 1e-3\n"
    text += "memory: 4GiB\nnone: null\nport: 12:30\n"
    assert read(tmp_path, text) == {
        "draft": "off",
        "why": "no",
        "old": "yes",
        "new": True,
        "len": 16,
        "risk": 0.05,
        "small": 0.001,
        "memory": "4GiB",
        "none": None,
        "port": "12:30",
    }


def test_json_is_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, '{"smart": {"little": "a", "risk": 0.05, "list": [1, 2]}}') == {
        "smart": {"little": "a", "risk": 0.05, "list": [1, 2]}
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: 'a' is given twice"),
        ("a: {b: 1, b: 2}\n", "'b' is given twice"),
        ("a: &x 1\nb: *x\n", "line 2: aliases are not read"),
        ("1: a\n", "a key that is no text"),
        ("a: !!python/object:os.system 1\n", "line 1:"),
        ("a: [1\n", "line 2:"),
        ("- a\n- b\n", "no mapping"),
        ("", "no mapping"),
        ("a: b\n---\nc: d\n", "line 2:"),
        ("a: \x00\n", "some.yaml:"),
        ("[" * 5000, "some.yaml"),
        ("a: 2024-13-45\nb: \t-\n", "line 2:"),
    ],
)
def test_the_rest_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(tmp_path, text)
    assert told in caught.value.message
    assert caught.value.hint == "write it well"


def test_files_that_are_not_there_or_too_long(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="can't read"):
        read_mapping(tmp_path / "none.yaml", hint="h")
    with pytest.raises(InvalidRequestError, match="longer than"):
        read(tmp_path, "#" * (MAX_BYTES + 1))
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: \xe9\n")
    with pytest.raises(InvalidRequestError, match="latin"):
        read_mapping(path, hint="h")
