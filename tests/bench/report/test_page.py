"""The page as a whole: what it shows is what the lines say, and nothing in them becomes markup."""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from offramp.bench.report.page import page
from offramp.bench.results.cells import ALL, Interval
from tests.bench.report.made import cell, cells, given, item, leaving, run_line, whole
from tests.bench.report.markup import Page

EVIL = '</title></style></script><script>alert(1)</script><img src=x onerror="alert(2)">\'"&\x00\ud800\u202e'


def drawings(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_every_section_of_a_full_run() -> None:
    text = page([whole()])
    heads = re.findall(r"<h4>(.*?)</h4>", text)
    assert heads == [
        *("Speed against quality", "By task", "Several streams", "Acceptance by position", "Layers run for a token"),
        *("What it looks like", "All figures", "The cost model", "Provenance"),
    ]
    Page(text)


def test_drawings_are_well_formed_and_told() -> None:
    found = drawings(page([whole()]))
    assert len(found) > 30
    for drawing in found:
        if drawing.get("aria-hidden") != "true":
            assert drawing.get("role") == "img"
            assert (drawing.findtext("title") or "").strip()
        for each in drawing.iter():
            numbers = [value for name, value in each.items() if name in ("x", "y", "cx", "cy", "width", "height", "r")]
            assert all(re.fullmatch(r"-?\d+(\.\d+)?", number) for number in numbers), numbers


def test_figures_are_those_of_the_cell() -> None:
    odd = cell(
        decode_rate=Interval(123.4, 122.5, 125.6),
        total_rate=Interval(98.7, 97.1, 99.9),
        decode_ratio=Interval(1.234, 1.111, 1.357),
        total_ratio=Interval(1.087, 1.021, 1.166),
        first_ms=Interval(77.3, 71.2, 83.4),
        token_ms={"median": 4.56, "p90": 7.89, "p99": 13.5},
        peak_bytes=777 * 2**20,
        joules_per_token=Interval(0.345, 0.333, 0.357),
        acceptance_rate=0.456,
        acceptance_length=2.79,
        accepted_per_pos=(0.81, 0.47),
        mean_exit_layer=18.6,
        exit_counts={12: 250, 30: 750},
        quality={"exact_match": Interval(0.654, 0.611, 0.699)},
        quality_change={"exact_match": Interval(-0.017, -0.043, 0.009)},
        num_failed=3,
    )
    words = Page(page([given(shown=[cell("plain"), odd])])).text
    for shown in (
        *("123", "122 to 126", "98.7", "97.1 to 99.9", "1.23", "1.11 to 1.36", "1.09", "1.02 to 1.17", "77.3"),
        *("71.2 to 83.4", "4.56", "7.89", "13.5", "777 MiB", "0.345", "0.333 to 0.357", "45.6 %", "2.79", "81 %"),
        *("47 %", "18.6", "25 %", "75 %", "0.654", "~0.017 (~0.043 to +0.009)", "3 failed", "exact match"),
    ):
        assert shown.replace("~", "\N{MINUS SIGN}") in words, shown


def test_each_speed_stands_beside_its_promise() -> None:
    rows = re.findall(r"<tr>.*?</tr>", page([given()]))
    told = {row for row in rows if "tokens/s" not in row and "calibrated" in row}
    assert len(told) == 3 * 7
    assert all("calibrated, risk 0.05" in row for row in told)


def test_what_is_missing_is_a_dash_that_says_why() -> None:
    found = Page(page([given(shown=[cell("plain"), cell(quality={}, quality_change={}, peak_bytes=None)])]))
    reasons = {attributes["title"] for attributes in found.of("abbr")}
    assert reasons == {
        "this is plain decoding",
        "no answer was judged by ROUGE-L",
        "the system did not tell",
        "the machine does not tell its energy",
        "the method drafted nothing",
        "no token left early",
    }


def test_nothing_in_a_file_becomes_markup() -> None:
    workloads = {EVIL: {"tasks": {EVIL: 1}, "refused": [{"where": EVIL, "reason": EVIL}]}}
    evil: dict[str, Any] = {"workload": EVIL, "exactness": EVIL, "quality": {EVIL: Interval(0.1, 0.1, 0.1)}}
    shown = [cell(EVIL, task, **evil) for task in (ALL, EVIL)] + [cell("plain", **evil)]
    lines = [item(EVIL, EVIL, workload=EVIL, item=EVIL, pieces=(EVIL,), text=EVIL, token_ids=(1,), steps=((1.0, 1),))]
    lines[0] = replace(lines[0], exit_layers=(3,))
    run = replace(
        run_line((EVIL, "plain")), workloads=workloads, model=EVIL, provenance={EVIL: EVIL, "cpu": [EVIL, {EVIL: 1}]}
    )
    made = replace(given(lines, shown), name=EVIL, run=run)
    text = page([made, made])
    text.encode()
    found = Page(text)
    assert len(found.of("script")) == len(found.of("style")) == 1
    assert [name for tag, attributes in found.found for name in attributes if name.startswith("on")] == []
    assert found.of("img") == []
    assert "alert(1)" in found.text
    assert not re.search("[\x00\u202e\ud800]", text)


def test_a_run_of_plain_decoding_alone() -> None:
    words = Page(page([given(shown=[cell("plain")], methods=("plain",))])).text
    assert "Only plain decoding was measured: 187 (176 to 198) tokens/s." in words
    assert "By task" not in words
    assert "All figures" in words


def test_no_ratio_at_all() -> None:
    words = Page(page([given(shown=[cell(decode_ratio=None, total_ratio=None)])])).text
    assert "Nothing can be said about gains" in words
    assert "By task" not in words


def test_a_run_without_a_single_figure() -> None:
    words = Page(page([given(shown=[])])).text
    assert "No figure was measured." in words
    assert "shipped: nothing was measured" in words


def test_files_are_shown_one_after_the_other() -> None:
    second = replace(given(shown=[cell("plain"), cell(gain=2.03)]), name="other.jsonl")
    found = Page(page([given(shown=[cell("plain"), cell(gain=1.31)]), second]))
    assert [each["href"] for each in found.of("a")] == ["#file-1", "#file-2"]
    assert {each["id"] for each in found.of("h2")} == {"file-1", "file-2"}
    assert found.text.count("auto decodes 1.31 times") == found.text.count("auto decodes 2.03 times") == 1
    assert "1.67" not in found.text, "never averaged"


def test_huge_runs_are_cut_and_say_so() -> None:
    shown = [cell("plain", f"task-{number}") for number in range(500)] + [cell("plain")]
    text = page([given([leaving("plain", "chat", 5000)], shown)])
    words = Page(text).text
    assert "482 tasks more are in the file and not shown here" in words
    assert "4,840 tokens more are not shown." in words
    assert len(text) < 400_000


def test_only_its_own_style_and_script_may_run() -> None:
    text = page([whole()])
    [policy] = [each["content"] for each in Page(text).of("meta") if "http-equiv" in each]
    assert policy is not None
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "http:" not in text
    assert "https:" not in text
    assert " style=" not in text


def test_answers_are_coloured_where_their_tokens_are_known() -> None:
    lines = [leaving("calibrated", "chat", 7), item("auto", "chat", num_tokens=7)]
    text = page([given(lines)])
    coloured = re.findall(
        r'<span class="(depth-\d|drafted)"', text.split("What it looks like")[1].split("All figures")[0]
    )
    assert coloured.count("drafted") == 3
    assert len(coloured) == 3 + 7 + 3, "a legend of three depths, two answers"
    unknown = page([given([replace(line, pieces=()) for line in lines])])
    assert unknown.count("The file does not tell which token wrote what.") == 2
    assert 'class="drafted"' in unknown, "the bars tell it still"


def test_what_a_run_says_of_itself_is_told() -> None:
    words = Page(page([given(provenance={"threads": 2, "flags": ["avx2", "fma"], "load": None})])).text
    for told in (
        "avx2, fma",
        "unknown",
        "promise: calibrated, risk 0.05; draft: calibrated",
        "chat 10, summarization 10",
    ):
        assert told in words


@pytest.mark.parametrize("streams", [(1,), (1, 4)])
def test_several_streams_only_where_there_are(streams: tuple[int, ...]) -> None:
    text = page([given(shown=cells(streams=streams))])
    assert ("Several streams" in text) == (len(streams) > 1)
