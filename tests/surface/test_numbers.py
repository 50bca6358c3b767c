"""Speeds in the README and in pages written by hand are those of stored results, and none stands there without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.claims import Link, blocks, faults, links, renewed, unlinked
from benchmarks.page import read_results
from benchmarks.pages import by_hand
from benchmarks.routing import RESULTS as ROUTING_RESULTS
from benchmarks.routing import ROUTING, certified_table, table
from benchmarks.simulate_pairs import PAIRS, RATES, Machine
from benchmarks.simulate_pairs import table as simulated_table

ROOT = Path(__file__).resolve().parents[2]
DATED = {"log.md"}
REFERENCE = {"security.md", "server.md", *(page.name for page in (ROOT / "docs").glob("from-*.md"))}
"""Limits and defaults in seconds, no measurements."""
BY_HAND = by_hand()

NO_MEASUREMENT = {
    ("bench.md", "95 %"): "the confidence of intervals",
    ("collaborate.md", "95 %"): "the confidence of intervals",
    ("drafting.md", "2 %"): "what trials may lose at most",
    ("glossary.md", "20 %"): "a bound",
    ("metrics.md", "5 %"): "a bound",
    ("metrics.md", "10 s"): "a window",
    ("tuning.md", "95 %"): "the confidence of intervals",
    ("training.md", "28 %"): "a share of the time by default",
    ("which-method.md", "95 %"): "the confidence of intervals",
}


def text_of(page: Path) -> str:
    """Without the tables that a program writes."""
    text = page.read_text(encoding="utf-8")
    kept = [line for line in read_results(ROUTING_RESULTS) if line["benchmark"] == ROUTING]
    written = (table(kept), certified_table(kept), simulated_table(Machine.read(), PAIRS, RATES))
    for each in written:
        text = text.replace(each, "")
    return text


LINKS = [
    pytest.param(link, id=f"{page.name}:{block.line}")
    for page in BY_HAND
    for block in blocks(page.read_text(encoding="utf-8"))
    for link in links(block)
]
SPEEDS = [page for page in BY_HAND if page.name not in DATED | REFERENCE]


def test_there_are_numbers_to_compare() -> None:
    assert len(LINKS) > 20


@pytest.mark.parametrize("link", LINKS)
def test_a_number_is_that_of_the_result_it_names(link: Link) -> None:
    assert faults(link, ROOT) == []


@pytest.mark.parametrize("page", SPEEDS, ids=lambda page: page.name)
def test_no_speed_stands_without_a_result(page: Path) -> None:
    claimed = [(block.line, speed) for block in blocks(text_of(page)) for speed in unlinked(block)]
    assert [claim for claim in claimed if (page.name, claim[1]) not in NO_MEASUREMENT] == []


def test_what_is_excused_is_there() -> None:
    found = {(page.name, speed) for page in SPEEDS for block in blocks(text_of(page)) for speed in unlinked(block)}
    assert set(NO_MEASUREMENT) - found == set()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A root whose results have two lines."""
    lines = [
        {"method": "auto", "task": "all six", "ratio": {"median": 1.3498, "low": 1.2627}, "rate": 1240.6, "met": True},
        {"method": "off", "cpt": {"0.2": {"value": 0.1447}}, "shares": [0.5, -0.004], "name": "plain", "met": False},
    ]
    path = tmp_path / "benchmarks" / "results" / "some.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "pack.json").write_text('{"rank": 128}', encoding="utf-8")
    return tmp_path


def faults_of(text: str, root: Path) -> list[str]:
    return [wrong for block in blocks(text) for link in links(block) for wrong in faults(link, root)]


@pytest.mark.parametrize(
    "text",
    [
        "comes 1.35 times as fast <!-- result: some method=auto ratio.median -->",
        "comes 1.3 times <!-- result: some method=auto ratio.median -->",
        'of 3, 1.35 and 1.26 <!-- result: some task="all six"\nratio.median ratio.low -->',
        "makes 1,241 tokens/s <!-- result: some met=true rate -->",
        "14 % <!-- result: some method=off cpt.0.2.value -->, 0.145 <!-- result: some name=plain cpt.0.2.value -->",
        "50%, -0.4 % <!-- result: some method=off shares.0 shares.1 -->",
        "| 128 <!-- result: ./pack.json rank --> | 1 |",
    ],
)
def test_true_numbers_pass(text: str, results: Path) -> None:
    assert faults_of(text, results) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("1.36 times <!-- result: some method=auto ratio.median -->", "1.3498, not 1.36"),
        ("1.4 times <!-- result: some method=auto ratio.median -->", "not 1.4"),
        ("1.35 <!-- result: some method=auto ratio.high -->", "ratio.high is None"),
        ("1.35 <!-- result: some method=auto ratio -->", "ratio is {"),
        ("1 <!-- result: some method=auto met -->", "met is True"),
        ("1 <!-- result: some method=off shares.2 -->", "shares.2 is None"),
        ("1.35 <!-- result: some method=eagle ratio.median -->", "0 lines"),
        ("1.35 <!-- result: some ratio.median -->", "2 lines"),
        ("1.35 <!-- result: other method=auto ratio.median -->", "no results other"),
        ("1.35 <!-- result: some method=auto -->", "0 fields"),
        ("much <!-- result: some method=auto ratio.median -->", "beside 0 numbers"),
        ("1.35\n\nmuch <!-- result: some method=auto ratio.median -->", "beside 0 numbers"),
        (
            "1.35 <!-- result: some method=auto ratio.median --> <!-- result: some method=auto ratio.low -->",
            "0 numbers",
        ),
        ("0.14 % <!-- result: some method=off cpt.0.2.value -->", "not 0.14 %"),
    ],
)
def test_a_wrong_number_is_found(text: str, wrong: str, results: Path) -> None:
    [found] = faults_of(text, results)
    assert wrong in found


@pytest.mark.parametrize(
    ("text", "speeds"),
    [
        ("comes 1.2 to 2 times as fast", ["1.2 to 2 times"]),
        ("takes 5.3 ms a token, 188 tokens/s", ["5.3 ms", "188 tokens/s"]),
        ("takes 0.3\nms", ["0.3 ms"]),
        ("a median of 1.29 (1.16 to 1.49)", ["1.29 (1.16 to 1.49"]),
        ("38% of it, 2.5 % of that", ["38%", "2.5 %"]),
        ("1.5 <!-- result: some x --> to 2 times", ["1.5 to 2 times"]),
        ("1.5 <!-- result: some x --> to 2 <!-- result: some x --> times", []),
        ("5 ms, 1.5 times <!-- result: some x -->", ["5 ms"]),
        ("1.35 times (1.2 to 1.5) <!-- result: some x y z -->", []),
        ("On 2026-11-30 it took 5 ms.", []),
        ("many times, SmolLM2-135M, 64MiB, q8, 16 streams, at 8000", []),
        ("```\n5 ms\n```\n", []),
    ],
)
def test_speeds_are_seen(text: str, speeds: list[str]) -> None:
    assert [speed for block in blocks(text) for speed in unlinked(block)] == speeds


def test_numbers_are_renewed_as_exactly_as_they_are_written(results: Path) -> None:
    page = """```sh
2 <!-- result: some method=auto ratio.median -->
```
Of 16, 1.2 times (+1.1) <!-- result: some method=auto ratio.median ratio.low -->, 1,000 tokens/s
<!-- result: some met=true rate --> and 20 % <!-- result: some method=off cpt.0.2.value -->, 9% <!-- result: some
method=off shares.0 -->, 7 <!-- result: some method=eagle rate -->, 1.35 <!-- result: some method=auto ratio.median -->
"""
    after = renewed(page, results)
    changes = {"1.2 times (+1.1)": "1.3 times (+1.3)", "1,000": "1,241", "20 %": "14 %", "9%": "50%"}
    for before, now in changes.items():
        page = page.replace(before, now)
    assert after == page
    assert renewed(after, results) == after


def test_blocks_are_paragraphs_items_and_rows() -> None:
    text = "# a\ntext\nmore\n\n* b\n  c\n* d\n```\nx\n```\n| e |\n| f |\n"
    assert [(block.line, " ".join(block.text.split())) for block in blocks(text)] == [
        (1, "# a text more"),
        (5, "* b c"),
        (7, "* d"),
        (11, "| e |"),
        (12, "| f |"),
    ]


def test_the_pages_that_make_claims_are_read() -> None:
    assert {"README.md", "which-method.md", "drafting.md"} <= {page.name for page in SPEEDS}
