"""A run over a toy model with a random drafter pack: every part, the targets, the page."""

from __future__ import annotations

import argparse
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.page import Json
from benchmarks.speculation.__main__ import cost_line
from benchmarks.speculation.contestant import AUTO, PLAIN
from benchmarks.speculation.prompts import CODE, TASKS, Prompt
from benchmarks.speculation.summary import ALL, stream_line
from benchmarks.speculation.turns import many_streams
from benchmarks.tests.test_session import FACTS
from benchmarks.tests.test_speculation import CHEAP
from benchmarks.trained_drafters import __main__ as program
from benchmarks.trained_drafters.methods import EAGLE, EVERYTHING, GENERAL
from benchmarks.trained_drafters.page import CHART, render, write_page
from benchmarks.trained_drafters.targets import target_lines
from offramp.draft.pack_file import write_drafter
from offramp.llm.drafter_pack import with_drafter
from offramp.llm.loading import LoadedModel, load_model
from offramp.testing.models import write_chat_model
from offramp.testing.side import random_drafter

RUN = FACTS | {"model": "toy", "weights": "q8", "new_tokens": 10, "prompts_per_task": 1, "rounds": 2, "parts": []}
ABOUT = {
    "recipe": {"batch_rows": 1000},
    "prompts": {"file": "p.jsonl", "answered": 7},
    "tokens": 5000,
    "steps": 30,
    "minutes": 3.5,
    "validation": {"tested": [90, 40, 20], "accepted": [0.5, 0.45, 0.4], "tokens_a_draft": 0.815},
    "curve": [
        {"step": 15, "minutes": 1.5, "rates": [0.3, 0.2, 0.1]},
        {"step": 30, "minutes": 3.0, "rates": [0.5, 0.45, 0.4]},
    ],
}


pytestmark = pytest.mark.usefixtures("unlearned")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFRAMP_CACHE", str(folder / "cache"))
        loaded = load_model(write_chat_model(folder / "toy.gguf"), threads=1)
        made = random_drafter(loaded.config, model=loaded.source_hash)
        pack = replace(made, config=replace(made.config, provenance=ABOUT))
        write_drafter(folder / "pack", pack)
        yield with_drafter(loaded, folder / "pack")


@pytest.fixture(scope="module")
def prompts(loaded: LoadedModel) -> list[Prompt]:
    return [Prompt(task, task, loaded.tokenizer.encode(f"{task}? {task}! ")) for task in (*TASKS, CODE)]


@pytest.fixture(scope="module")
def lines(loaded: LoadedModel, prompts: list[Prompt]) -> list[Json]:
    args = argparse.Namespace(new_tokens=10, rounds=2)
    together = many_streams(loaded, CHEAP, prompts, new_tokens=6, rounds=2, method=EVERYTHING)
    assert loaded.drafter is not None
    found = [cost_line(CHEAP), program.training_line(loaded.drafter)]
    found += [*program.method_results(loaded, CHEAP, prompts, GENERAL, args), stream_line(together, EVERYTHING)]
    found += target_lines(found)
    return [json.loads(json.dumps(line | {"provenance": RUN})) for line in found]


def test_each_method_has_its_weights_and_no_other(lines: list[Json]) -> None:
    by_name = {(line["method"], line["task"]): line for line in lines if line["result"] == "method"}
    assert {method for method, _ in by_name} == {method.name for method in GENERAL if method != PLAIN}
    assert by_name[EAGLE.name, ALL]["num_drafts"] > 0
    assert by_name[EAGLE.name, ALL]["rounds"] == by_name[AUTO.name, ALL]["rounds"] == 2
    assert {line["method"] for line in lines if line["result"] == "streams"} == {EVERYTHING.name}


def test_targets_look_at_what_was_measured(lines: list[Json]) -> None:
    whats = [line["what"] for line in lines if line["result"] == "target"]
    assert whats[:2] == [f"{EAGLE.name}: {ALL}", f"{EVERYTHING.name}: {ALL}"]
    assert any("worst task" in what for what in whats)
    assert any("16 streams" in what for what in whats)
    fast = [line | {"ratio": {"median": 1.5, "low": 1.4, "high": 1.6}} for line in lines if line["result"] == "method"]
    met = {line["what"]: line["met"] for line in target_lines(fast)}
    assert met[f"{EAGLE.name}: {ALL}"]
    assert met[f"{EVERYTHING.name}: {ALL}"]
    assert not met[f"{EVERYTHING.name}: rag"]


@pytest.mark.parametrize(
    ("ratio", "met"),
    [((1.2, 1.02, 1.5), True), ((1.0, 0.97, 1.03), True), ((1.0, 0.8, 1.3), False), ((0.9, 0.88, 0.95), False)],
)
def test_never_slower_takes_a_narrow_interval(lines: list[Json], ratio: tuple[float, ...], met: bool) -> None:
    told = dict(zip(("median", "low", "high"), ratio, strict=True))
    streams = [line | {"ratio": told} for line in lines if line["result"] == "streams"]
    assert [line["met"] for line in target_lines(streams)] == [met]


def test_the_page_tells_all_of_it(lines: list[Json], tmp_path: Path) -> None:
    text = render(lines)
    assert "tokens seen" in text
    assert "5000 tokens of 7 answers, 30 steps" in text
    assert "| 30 | 0.03 M | 3 | 0.500 | 0.450 | 0.400 |" in text
    for method in (EAGLE, EVERYTHING, AUTO):
        assert f"| {ALL} | {method.name} |" in text
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_page(results, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
    ElementTree.parse(tmp_path / "images" / CHART)


def test_a_missing_parser_is_named(lines: list[Json]) -> None:
    missing = {"result": "missing", "what": "the parser", "reason": "no torch", "provenance": RUN}
    assert "Not measured: the parser, no torch." in render([*lines, missing])
