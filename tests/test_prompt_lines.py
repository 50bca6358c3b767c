"""Bad lines are told apart from good ones, whatever stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import prompt_lines
from offramp.errors import InvalidRequestError
from offramp.prompt_lines import BadLine, Entry, entries


def test_each_line_is_an_object_or_bad(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n\n  \n[1]\n{"b": \xff}\n{oops\r\n' + b"[" * 100_000 + b'\n{"c": "\xc3\xa9"}')
    good = [(line.number, line.fields) for line in entries(path) if isinstance(line, Entry)]
    bad = [(line.where, line.reason.split(":")[0]) for line in entries(path) if isinstance(line, BadLine)]
    assert good == [(1, {"a": 1}), (8, {"c": "é"})]
    assert bad == [
        (f"{path}, line 4", "is not an object"),
        (f"{path}, line 5", "is not UTF-8"),
        (f"{path}, line 6", "is not JSON"),
        (f"{path}, line 7", "is not JSON"),
    ]


def test_a_line_that_is_too_long_is_one_bad_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_lines, "LONGEST_LINE", 20)
    path = tmp_path / "lines"
    long = ('{"prompt": "' + "a" * 70 + '"}', " " * 30 + "{}", "b" * 21)
    path.write_text("\n".join(('{"prompt": "a"}', *long, '{"prompt": "b"}', "c" * 41)))
    found = list(entries(path))
    assert [line.where for line in found] == [f"{path}, line {number}" for number in range(1, 7)]
    assert [isinstance(line, Entry) for line in found] == [True, False, False, False, True, False]
    assert {line.reason for line in found if isinstance(line, BadLine)} == {"is longer than 20 bytes"}


def test_a_reader_of_prompts_alone_stops_at_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    lines = prompt_lines.prompt_lines(path)
    assert next(lines).content == "a"
    with pytest.raises(InvalidRequestError, match="line 2 is not UTF-8"):
        next(lines)
    with pytest.raises(InvalidRequestError, match="can't read"):
        next(prompt_lines.prompt_lines(tmp_path))
