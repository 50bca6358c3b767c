"""A whole run over a toy model: choosing, confirming, lines, targets, charts, the page."""

from __future__ import annotations

import argparse
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.early_exit import __main__ as program
from benchmarks.early_exit import costs as costs_module
from benchmarks.early_exit import study as study_module
from benchmarks.early_exit.cells import MANY_PROPAGATE, ONE_DEFERRED, ONE_PROPAGATE, PARTS, SOME_LITERAL
from benchmarks.early_exit.charts import write_charts
from benchmarks.early_exit.confirm import Confirmation, TokensDifferError, points
from benchmarks.early_exit.contestant import FULL, Contestant, Sample, Setting
from benchmarks.early_exit.data import encode_pairs, matches, parser_pairs
from benchmarks.early_exit.page import frame, render
from benchmarks.early_exit.plots import bar_chart, line_chart
from benchmarks.early_exit.search import Choice, stricter
from benchmarks.early_exit.study import Study, study
from benchmarks.early_exit.tables import verdict
from benchmarks.early_exit.targets import target_lines
from benchmarks.early_exit.turns import decode_ratio, groups_of, take_turns
from benchmarks.page import Json
from benchmarks.tests.test_early_exit_replay import by_rows
from benchmarks.tests.test_session import FACTS
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.core import Rows
from offramp.errors import ResourceError
from offramp.exits.frozen import FrozenPolicy
from offramp.llm.loading import LoadedModel
from offramp.model.executor import Hidden
from offramp.native import NativeExecutor
from offramp.train.pairs import Pair, read_pairs, split_pairs
from tests.calibrate.settling import LAYERS, prompts, settling_model

NEW_TOKENS = 5
RUN = FACTS | {
    "weights": "q8",
    "examples": 4,
    "timed": 4,
    "tried": 2,
    "prompts_per_task": 1,
    "new_tokens": NEW_TOKENS,
    "rounds": 2,
    "parts": [],
}
ALL_LEAVE = Setting(FrozenPolicy(layers=LAYERS[:1], thresholds=(0.0,), measure="margin", fill="propagate"))


@pytest.fixture(scope="module", autouse=True)
def known_costs() -> Iterator[None]:
    """Instead of two seconds of measuring."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_module, "measure_step_costs", lambda *args, **kwargs: by_rows(0.1))
        yield


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """Exits agree with full depth now and then."""
    return settling_model(0.6)


def answered(loaded: LoadedModel, asked: list[CalibrationPrompt]) -> list[CalibrationPrompt]:
    """Prompts whose references are full depth's own answers, but for the first one's."""
    runs = take_turns(loaded, [FULL], groups_of(asked, 4, rest=True), new_tokens=NEW_TOKENS, rounds=1, what="")
    texts = [loaded.tokenizer.decode(answer) for sample in runs[FULL][0] for answer in sample.token_ids]
    return [
        replace(each, references=("never" if n == 0 else text,))
        for n, (each, text) in enumerate(zip(asked, texts, strict=True))
    ]


@pytest.fixture(scope="module")
def pairs(loaded: LoadedModel) -> tuple[list[CalibrationPrompt], list[CalibrationPrompt]]:
    return answered(loaded, prompts(5)), answered(loaded, prompts(5, seed=1))


@pytest.fixture(scope="module")
def known(loaded: LoadedModel, pairs: tuple[list[CalibrationPrompt], list[CalibrationPrompt]]) -> Study:
    return study("parser", loaded, pairs[0], NEW_TOKENS)


@pytest.fixture(scope="module")
def lines(loaded: LoadedModel, pairs: tuple[list[CalibrationPrompt], list[CalibrationPrompt]]) -> list[Json]:
    """All that a run tells, in its words."""
    args = argparse.Namespace(
        parts=[*PARTS, "default"],
        parser="parser",
        parser_pack=None,
        pack=Path("pack"),
        model="model",
        examples=4,
        timed=4,
        tried=2,
        rounds=2,
        prompts_per_task=2,
        new_tokens=NEW_TOKENS,
        smoke=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_load", lambda *given: loaded)
        patch.setattr(program, "data_file", lambda name: Path(name))
        patch.setattr(program, "encode_pairs", lambda half, model: half)
        patch.setattr(program, "parser_pairs", lambda *given: pairs)
        patch.setattr(program, "general_prompts", lambda model, count: prompts(4, seed=2))
        told = list(program.results(args))
    return [json.loads(json.dumps(line | {"provenance": RUN})) for line in told]


def test_every_cell_is_searched_and_confirmed(lines: list[Json]) -> None:
    cells = [cell.name for part in PARTS.values() for cell in part]
    assert [line["cell"] for line in lines if line["result"] == "cell"] == cells
    for cell in cells:
        tried = [line for line in lines if line["result"] == "sweep" and line["cell"] == cell]
        assert [line["chosen"] for line in tried].count(True) == 1
        assert 1 <= len(tried) <= 4
        [chosen] = [line for line in tried if line["chosen"]]
        [confirmed] = [line for line in lines if line["result"] == "cell" and line["cell"] == cell]
        limits = [1 - (1 - each) / 4 if each > 0 else each for each in chosen["policy"]["thresholds"]]
        assert confirmed["policy"] == {**chosen["policy"], "thresholds": limits}
        assert confirmed["rounds"] == 2
        kept = [line for line in tried if line["within"]]
        if kept:
            assert chosen["ratio"]["median"] == max(line["ratio"]["median"] for line in kept)
        else:
            assert chosen["exact"] == max(line["exact"] for line in tried)


def test_figures_fit_together(lines: list[Json]) -> None:
    for line in lines:
        if line["result"] == "cell":
            assert line["full_exact"] == 0.8, "full depth wrote the references, but for the first"
            assert line["points"]["median"] == pytest.approx(100 * (line["exact"] - line["full_exact"]))
        if line["result"] in ("cell", "default", "ladder"):
            depth = sum(int(layer) * share for layer, share in line["depths"].items())
            assert depth == pytest.approx(line["depth"], abs=0.02)
    assert {line["streams"] for line in lines if line["result"] == "default"} == {1, 4, 16}
    assert {line["model"] for line in lines if line["result"] == "agreement"} == {"parser", "default"}


def test_the_page_is_whole(lines: list[Json], tmp_path: Path) -> None:
    charts = write_charts(lines, tmp_path / "page.md")
    page = render(lines, charts)
    for heading in ("Targets", "Parser: the chosen", "Parser: what was tried", "Agreement", "Thresholds", "Predicted"):
        assert f"\n## {heading}" in page
    for cell in (ONE_DEFERRED, ONE_PROPAGATE, MANY_PROPAGATE, SOME_LITERAL):
        assert f"\n| {cell.name} |" in page
    assert page.startswith(frame().split("\nNot measured")[0])
    assert "not quiet" not in page
    for name in charts:
        assert f"images/{name}.svg" in page
        file = tmp_path / "images" / f"{name}.svg"
        ElementTree.parse(file)
        assert file.stat().st_size < 20_000
    widths = {line.count("|") for line in page.splitlines() if line.startswith("|")}
    assert max(widths) < 20


def test_turns_rotate_and_every_setting_gets_every_group(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[bool, int]] = []
    honest = Contestant.run

    def noted(self: Contestant, asked: list[CalibrationPrompt], new_tokens: int) -> Sample:
        if new_tokens == NEW_TOKENS:
            ran.append((self._policy is None, len(asked)))
        return honest(self, asked, new_tokens)

    monkeypatch.setattr(Contestant, "run", noted)
    groups = groups_of(prompts(7), 3)
    assert [len(group) for group in groups] == [3, 3]
    samples = take_turns(loaded, [FULL, ALL_LEAVE], groups, new_tokens=NEW_TOKENS, rounds=2, what="")
    assert [full for full, _ in ran] == [True, False, False, True, False, True, False, True]
    assert all(len(rounds) == 2 and all(len(runs) == 2 for runs in rounds) for rounds in samples.values())
    assert len(groups_of(prompts(7), 3, rest=True)[-1]) == 1
    assert [len(group) for group in groups_of(prompts(2), 3)] == [2]


def test_ratios_are_of_decoding_alone(loaded: LoadedModel) -> None:
    [run] = take_turns(loaded, [FULL], [prompts(1)], new_tokens=NEW_TOKENS, rounds=1, what="")[FULL][0]
    slow, fast = (replace(run, first=9.0, total=9.0 + seconds, decoded=4) for seconds in (2.0, 1.0))
    ratio = decode_ratio([[slow], [slow]], [[fast], [fast]])
    assert ratio is not None
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)
    assert decode_ratio([[slow]], [[replace(fast, decoded=0)]]) is None


def test_answers_that_depend_on_the_batch_end_the_run(known: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compact setting must answer alone as among others."""
    honest = Contestant.run

    def forged(self: Contestant, asked: list[CalibrationPrompt], new_tokens: int) -> Sample:
        sample = honest(self, asked, new_tokens)
        return replace(sample, token_ids=[[7, 7]]) if len(asked) == 1 and self._policy else sample

    monkeypatch.setattr(Contestant, "run", forged)
    confirmation = Confirmation(study=known, prompts=known.prompts, timed=2, rounds=1)
    with pytest.raises(TokensDifferError, match="depend on the batch"):
        list(confirmation.lines([Choice(ONE_PROPAGATE, ALL_LEAVE, True)]))


def cell(name: str, median: float, *, within: bool, streams: int) -> Json:
    ratio = {"median": median, "low": median - 0.1, "high": median + 0.1}
    facts = {"exact": 0.9, "full_exact": 0.91, "points": ratio, "predicted": 1.7}
    return {"result": "cell", "cell": name, "ratio": ratio, "within": within, "streams": streams, **facts}


def test_targets_ask_for_speed_and_quality() -> None:
    fast_and_wrong = cell(ONE_PROPAGATE.name, 2.0, within=False, streams=1)
    slow_and_right = cell(ONE_DEFERRED.name, 1.4, within=True, streams=1)
    [found] = target_lines([fast_and_wrong, slow_and_right])
    assert (found["ratio"]["median"], found["met"]) == (1.4, False)
    [found] = target_lines([fast_and_wrong])
    assert not found["met"]
    many = cell(MANY_PROPAGATE.name, 1.35, within=True, streams=16)
    versus = {"result": "versus", "streams": 16, "ratio": {"median": 0.98, "low": 0.9, "high": 1.1}}
    literal = cell(SOME_LITERAL.name, 1.3, within=True, streams=4)
    assert [line["met"] for line in target_lines([many, versus, literal])] == [True, True, False]


def test_points_by_hand() -> None:
    found = points(np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0]))
    assert (found.median, found.high) == (-25.0, 0.0)
    assert found.low < -25


def test_what_is_reported_was_never_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"ask {number}", "reference": f"[{number}]"} for number in range(200)]
    path.write_text("\n".join(map(json.dumps, rows)))
    seen, kept = parser_pairs(path, {"recipe": {"held_out": 0.2, "seed": 5}}, 999)
    assert (seen, kept) == split_pairs(read_pairs(path), 0.2, 5)
    assert kept != parser_pairs(path, {"recipe": {"held_out": 0.2, "seed": 6}}, 999)[1]
    assert [len(some) for some in parser_pairs(path, {}, 3)] == [3, 3]


def test_chosen_thresholds_are_made_stricter() -> None:
    policy = FrozenPolicy(layers=(1, 2), thresholds=(0.96, 0.0), measure="margin", fill="propagate")
    made = stricter(Setting(policy, "literal"))
    assert made == Setting(replace(policy, thresholds=(1 - (1 - 0.96) / 4, 0.0)), "literal")


def test_an_answer_matches_its_reference_text(loaded: LoadedModel) -> None:
    ids = loaded.tokenizer.encode("play it", add_bos=False)
    end = min(loaded.eos_token_ids)

    def asked(reference: str) -> CalibrationPrompt:
        return replace(prompts(1)[0], references=(reference,))

    assert matches(loaded, [*ids, end], asked(" play  it "))
    assert not matches(loaded, [*ids, *ids], asked("play it"))
    assert not matches(loaded, ids, asked("play"))


def test_charts_hold_their_values() -> None:
    bars = ElementTree.fromstring(bar_chart("t", "x", "y", ["a", "b"], {"one": [10.0, 5.0], "two": [0.0, 2.5]}))
    heights = [float(rect.attrib["height"]) for rect in bars.iter("{http://www.w3.org/2000/svg}rect")][1:5]
    assert heights[:2] == pytest.approx([2 * heights[1], heights[1]], abs=0.11)
    assert heights[2] == 0
    text = line_chart("a < b", "x", "y", {"one": [(0.0, 1.0), (3.0, 1.0)]})
    assert "a &lt; b" in text
    ElementTree.fromstring(text)


@pytest.mark.parametrize("folder", [None, "", "empty"])
def test_without_data_it_says_what_is_missing(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFRAMP_DATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("OFFRAMP_DATA", folder and str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["early_exit", "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"(?s)error: .*(not set|does not exist).*hint: set OFFRAMP_DATA"):
        program.main()
    assert not (tmp_path / "out").exists()


def test_folders_of_the_machine_stay_out_of_the_results() -> None:
    told = "python -m benchmarks.early_exit --parser /srv/a --parser-pack /srv/b/c --pack=/srv/d --rounds 5"
    assert program.FOLDERS.sub(r"\1 DIR", told) == (
        "python -m benchmarks.early_exit --parser DIR --parser-pack DIR --pack DIR --rounds 5"
    )


def test_a_run_keeps_what_another_said_of_the_other_model(lines: list[Json], tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    assert program.kept_lines(output, ["parser"]) == []
    both = [*lines, {"result": "missing", "part": "default"}, {"result": "missing", "part": "parser"}]
    output.write_text("".join(json.dumps(line) + "\n" for line in both) + '{"result": "cut o', encoding="utf-8")
    of_default, of_parser = program.kept_lines(output, ["parser", "batch"]), program.kept_lines(output, ["default"])
    assert len(of_default) + len(of_parser) == len(both)
    assert {json.loads(line)["result"] for line in of_default} == {"agreement", "costs", "default", "ladder", "missing"}
    assert {"cell", "sweep", "target"} <= {json.loads(line)["result"] for line in of_parser}
    assert program.kept_lines(output, ["literal", "default"]) == []


def test_the_verdict_takes_nothing_beyond_its_risk() -> None:
    policy = {"layers": [2], "thresholds": [0.5], "measure": "margin", "predictor": "none"}
    line = {"ratio": {"median": 1.2, "low": 1.1, "high": 1.3}, "risk": 0.05, "streams": 4, "policy": policy}
    assert verdict([line | {"loss": 0.04}]).startswith("At its best, margin 2: 0.5 at 4 streams")
    assert "lost more than its risk" in verdict([line | {"loss": 0.06}])
    slow = line | {"ratio": {"median": 1.0, "low": 0.9, "high": 1.1}, "loss": 0.0}
    assert verdict([slow]).startswith("**General chat gains nothing")
    assert "lost more" not in verdict([slow])


def test_the_page_names_both_runs(lines: list[Json]) -> None:
    later = RUN | {"measured_at": "2031-01-01T00:00:00+00:00"}
    page = render([*lines, lines[-1] | {"provenance": later}], {})
    assert page.count("Weights in q8") == 2
    assert "2031-01-01" in page


def test_parts_without_their_model_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_torch(model: str) -> Path:
        raise ResourceError("training needs torch, which is not installed", hint="install it")

    monkeypatch.setattr(program, "kept_parser", no_torch)
    args = argparse.Namespace(parts=["parser", "default"], parser=None, pack=None, model="toy")
    told = list(program.results(args))
    assert [line["result"] for line in told] == ["missing", "missing"]
    page = render([line | {"provenance": RUN} for line in told], {})
    assert "Missing: parser, training needs torch, which is not installed." in page


def test_what_exits_add_is_timed(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all layers, as in a step; more rows never cost less."""
    ran: list[int] = []
    honest = NativeExecutor.run_layers

    def noted(self: NativeExecutor, h: Hidden, rows: Rows, start: int, stop: int) -> Hidden:
        ran.append(stop - start)
        return honest(self, h, rows, start, stop)

    monkeypatch.setattr(NativeExecutor, "run_layers", noted)
    monkeypatch.setattr(costs_module, "REPEATS", 2)
    assert loaded.exits is not None
    timer = costs_module.Timer(loaded, loaded.exits, np.arange(4, dtype=np.int32))
    first = loaded.exits.pack.config.layers[0]
    for make in (partial(timer.ask, first), timer.fill, partial(timer.guess, "similarity")):
        ran.clear()
        curve = timer.curve(make)
        assert [rows for rows, _ in curve.points] == [1, 2, 4, 8, 16]
        assert 0 < curve.at(1) <= curve.at(16)
        assert ran == [loaded.config.num_layers] * 10
    asks = timer.asks()
    assert tuple(asks) == loaded.exits.pack.config.layers
    same_head = len(set(loaded.exits.heads.values())) == 1
    assert (len(set(map(id, asks.values()))) == 1) == same_head


def test_pairs_are_encoded_as_in_training(loaded: LoadedModel) -> None:
    [prompt] = encode_pairs([Pair("play it", "[play]")], loaded)
    expected = loaded.template.encode_chat(loaded.tokenizer, [{"role": "user", "content": "play it"}])
    assert prompt.token_ids.tolist() == expected
    assert prompt.references == ("[play]",)
