"""Files as they come: runs, comparisons with other engines, and what is neither."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from offramp.bench.report.given import Given
from offramp.bench.report.markdown import markdown, plain_text
from offramp.bench.report.page import page
from offramp.bench.report.peers import Peers
from offramp.bench.report.reading import read_results
from offramp.errors import InvalidRequestError
from tests.bench.report.made import cell, given, whole
from tests.bench.report.markup import Page
from tests.bench.report.written import write_run


def comparison(case: str = "decode-64", peer: str = "llama", ratio: object = None) -> dict[str, object]:
    return {
        "result": "comparison",
        "title": case,
        "ours": {"peer": "offramp", "weights": "q8", "tokens_per_s": 169.23},
        "theirs": {"peer": peer, "weights": "Q8_0", "tokens_per_s": 138.51},
        "ratio": {"median": 1.2219, "low": 1.1629, "high": 1.2632} if ratio is None else ratio,
        "provenance": {"cpu": "AMD EPYC", "measured_at": "2026-11-30T07:38:29+00:00", "command": "secret"},
    }


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_run_is_read_with_its_figures(tmp_path: Path) -> None:
    found = read_results(write_run(tmp_path / "mine.jsonl"))
    assert isinstance(found, Given)
    assert found.name == "mine.jsonl"
    assert {(each.method, each.num_items) for each in found.cells if each.task == "all"} == {("plain", 4), ("ngram", 4)}
    words = Page(page([found])).text
    assert "ngram decodes 2.00 times as fast as plain decoding" in words
    assert "ngram, w, 1 stream: b-1 failed: too long" in words


def test_other_engines_are_shown(tmp_path: Path) -> None:
    missing = {"result": "missing", "peer": "vllm", "weights": "F32", "reason": "not installed", "provenance": {}}
    path = write(tmp_path / "peers.jsonl", comparison(), comparison("prefill", "<b>openvino"), missing)
    found = read_results(path)
    assert isinstance(found, Peers)
    text = page([whole(), found])
    words = Page(text).text
    for shown in (
        "llama Q8_0",
        "<b>openvino Q8_0",
        "1.22",
        "1.16 to 1.26",
        "169 tokens/s",
        "vllm F32: not installed",
    ):
        assert shown in words
    assert "secret" not in words
    assert "| decode-64 | q8 | llama Q8\\_0 | 169 tokens/s | 139 tokens/s | 1.22 (1.16 to 1.26) |" in markdown([found])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n{}\n", "is empty, or begins with an empty line"),
        (b"\x89PNG\r\n", "line 1 is not JSON"),
        (b"[" * 100_000, "line 1 is not JSON"),
        (b"[1]\n", "line 1 is not an object"),
        (b'{"prompt": "hello"}\n', "line 1"),
        (b'{"kind": "turn"}\n', "line 1"),
        (json.dumps(comparison(ratio={"median": "much"})).encode() + b"\n", "a comparison without a ratio"),
        (json.dumps(comparison()).encode() + b'\n{"half": ', "line 2 is not JSON"),
        (json.dumps(comparison()).encode() + b'\n{"kind": "run"}\n', "line 2 is no line of a comparison"),
        (json.dumps(comparison() | {"result": "rows"}).encode() + b"\n", "compares with no other engine"),
    ],
)
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=r"odd\.jsonl") as caught:
        read_results(path)
    assert why in caught.value.message
    assert "offramp bench run" in caught.value.hint


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"can't read .*none\.jsonl"):
        read_results(tmp_path / "none.jsonl")


def test_what_is_no_file_or_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(InvalidRequestError, match="no regular file"):
            read_results(path)
    monkeypatch.setattr("offramp.bench.report.reading.MOST_BYTES", 100)
    with pytest.raises(InvalidRequestError, match=r"long\.jsonl is longer than 100 bytes"):
        read_results(write_run(tmp_path / "long.jsonl"))


def test_markdown_has_a_row_a_cell() -> None:
    text = markdown([given(shown=[cell("plain"), cell(gain=1.31), cell("suffix", "chat", 4)])])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert len(rows) == 2 + 3
    assert "**auto decodes 1.31 times as fast as plain decoding (1.23 to 1.39), with exactly its tokens.**" in text
    assert "| auto | lossless | all | 1 | 100 % | ROUGE-L 0.412, 0 against plain |" in text


def test_markdown_of_a_full_run_tells_failures() -> None:
    assert "* **failed** eagle, shipped, 16 streams: code-7 failed: the context is full" in markdown([whole()])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("*x*\n# y", "\\*x\\* \\# y"),
        ("<img src=x>", "\\<img src=x\\>"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("1.5 x", "1.5 x"),
        ("q8-2.5 (new)", "q8-2.5 (new)"),
    ],
)
def test_markdown_of_odd_names(text: str, shown: str) -> None:
    assert plain_text(text) == shown


def test_made_runs_are_of_the_shape_that_is_written() -> None:
    """What these tests make by hand could be in a file."""
    for line in whole().lines:
        assert json.loads(json.dumps(asdict(line)))["kind"] == line.kind
