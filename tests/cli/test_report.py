"""`offramp report`: files in, a page or a table out, refusals by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.report.written import write_run

Offramp = Callable[..., Any]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(write_run(tmp_path / "results.jsonl"))


def test_a_page_is_written_where_nothing_is_said(offramp: Offramp, results: str) -> None:
    done = offramp("report", results)
    assert (done.code, done.out) == (0, ""), done.err
    assert re.search(r"report\.html: 1 file of results, [1-9]\d* KiB", done.err)
    text = Path("report.html").read_text(encoding="utf-8")
    assert "ngram decodes 2.00 times as fast as plain decoding" in text
    assert "toy&lt;model&gt;" in text


def test_several_files_and_both_kinds(offramp: Offramp, results: str, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other.jsonl", gain=4.0)
    done = offramp("report", results, str(other), "-o", "out.html", "--markdown", "out.md")
    assert done.code == 0, done.err
    for text in (Path("out.html").read_text(encoding="utf-8"), Path("out.md").read_text(encoding="utf-8")):
        assert text.index("ngram decodes 2.00 times") < text.index("ngram decodes 4.00 times")


@pytest.mark.parametrize("flags", [["-o", "out.md"], ["--markdown", "out.md"]])
def test_a_table_alone(offramp: Offramp, results: str, flags: list[str]) -> None:
    assert offramp("report", results, *flags).code == 0
    assert "| ngram | lossless | all | 1 |" in Path("out.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in Path().iterdir()) == ["out.md", "results.jsonl"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-o", "report.pdf"], "--output report.pdf: no such kind of file"),
        (["-o", "a.md", "--markdown", "b.md"], "two tables: a.md and b.md"),
        (["-o", "a.html", "--markdown", "a.html"], "the page and the table are both a.html"),
        (["-o", "none/report.html"], "can't write none/report.html"),
        (["--markdown", "results.jsonl"], "results.jsonl holds results"),
        (["none.jsonl"], "can't read none.jsonl"),
    ],
)
def test_refusals(offramp: Offramp, results: str, flags: list[str], said: str) -> None:
    before = Path(results).read_bytes()
    done = offramp("report", results, *flags)
    assert done.code == 2
    assert said in done.err
    assert "hint:" in done.err
    assert Path(results).read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["results.jsonl"]


def test_a_damaged_file_is_refused_by_line(offramp: Offramp, results: str) -> None:
    text = Path(results).read_text(encoding="utf-8").replace('"kind": "turn"', '"kind": "tern"', 1)
    Path("bad.jsonl").write_text(text, encoding="utf-8")
    done = offramp("report", "bad.jsonl")
    assert done.code == 2
    assert "bad.jsonl, line 6" in done.err
    assert not Path("report.html").exists()


def test_no_file_at_all(offramp: Offramp) -> None:
    assert offramp("report").code == 2
