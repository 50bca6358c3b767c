"""Generated pages are what their generators make of the results that are kept, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.page import read_results
from benchmarks.pages import DOCS, PAGES, RESULTS, Page
from benchmarks.routing import certified_table, table


@pytest.mark.parametrize("kept", PAGES, ids=lambda kept: kept.page.name)
def test_a_page_is_made_of_the_kept_results(kept: Page, tmp_path: Path) -> None:
    """A page without results is by hand, results without a page are forgotten."""
    assert kept.page.exists() == kept.results.exists()
    if not kept.results.exists():
        pytest.skip("neither a page nor results yet")
    kept.write(kept.results, tmp_path / kept.page.name)
    for made in (path for path in tmp_path.rglob("*") if path.is_file()):
        there = DOCS / made.relative_to(tmp_path)
        assert made.read_text(encoding="utf-8") == there.read_text(encoding="utf-8"), there.name


def test_a_page_by_hand_would_be_found(tmp_path: Path) -> None:
    kept = PAGES[0]
    text = kept.results.read_text(encoding="utf-8")
    other = text.replace(read_results(kept.results)[0]["provenance"]["measured_at"], "another day")
    (tmp_path / "results.jsonl").write_text(other, encoding="utf-8")
    kept.write(tmp_path / "results.jsonl", tmp_path / kept.page.name)
    assert (tmp_path / kept.page.name).read_text(encoding="utf-8") != kept.page.read_text(encoding="utf-8")


def test_the_tables_of_routers_are_those_of_the_results() -> None:
    kept = [line for line in read_results(RESULTS / "routing.jsonl") if line["benchmark"] == "routing"]
    text = (DOCS / "collaborate.md").read_text(encoding="utf-8")
    assert table(kept) in text
    assert certified_table(kept) in text


def test_results_name_no_folder_of_the_machine_they_come_from() -> None:
    for path in RESULTS.glob("*.jsonl"):
        if not path.stem.endswith("-smoke"):
            for line in read_results(path):
                command = line.get("provenance", {}).get("command", "")
                assert "/" not in command, f"{path.name}: {command}"
