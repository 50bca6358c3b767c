"""`offramp bench run` over a tiny model: figures, results that are gone on with, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from offramp.bench.results.file import read_lines
from offramp.bench.results.lines import FailureLine, ItemLine, Line, TurnLine
from offramp.bench.run.process import WorkerError
from offramp.bench.run.rounds import Plan
from offramp.bench.run.turn import Heard
from offramp.cli.bench_progress import Lines
from offramp.cli.bench_run import _show
from tests.bench.results.made import item_line, run_line, turn_line
from tests.cli.conftest import RunCommand

LINES = [
    {"id": "one", "task": "a", "prompt": "hello world", "reference": "hello there world"},
    {"id": "two", "task": "b", "prompt": "12 12 12"},
    {"id": "three", "task": "b", "prompt": "12 " * 400},
    {"id": "none"},
]


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return str(file)


def test_a_run_from_prompts_to_figures_and_on(
    offramp: RunCommand, toy_model: str, prompts: str, tmp_path: Path
) -> None:
    output = tmp_path / "results.jsonl"
    args = ["bench", "run", toy_model, "--workload", prompts, "-o", str(output), "--max-tokens", "12", "--threads", "1"]
    args += ["--method", "quick:draft=ngram,draft_length=fixed"]
    done = offramp(*args, "--rounds", "1")
    assert done.code == 0, done.err
    cells = [json.loads(line) for line in done.out.splitlines()]
    assert [(cell["task"], cell["method"]) for cell in cells] == [
        (task, method) for task in ("all", "a", "b") for method in ("plain", "quick")
    ]
    quick = cells[1]
    assert (quick["workload"], quick["exactness"], quick["equal_share"]) == ("mine", "lossless", 1.0)
    assert (quick["num_items"], quick["num_failed"], quick["rounds"]) == (2, 1, 1)
    assert quick["decode_ratio"]["value"] > 0
    assert quick["quality"].keys() == {"contains"}
    assert "note: 1 line of" in done.err
    assert "note: 1 prompt could not be answered, such as three" in done.err
    assert "mine, 1 stream: speed" in done.err
    assert "round 1 of 1: mine, plain (0 of 6 answers)" in done.err
    assert "note: too few prompts and rounds for intervals of 95 %" in done.err

    again = offramp(*args, "--rounds", "1")
    assert (again.code, again.out) == (0, done.out)
    assert "round 1" not in again.err
    assert sum(isinstance(line, TurnLine) for line in read_lines(output)) == 2


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--rounds", "0"], "--rounds=0 is impossible", "integer"),
        (["--max-tokens", "0"], "--max-tokens=0 is impossible", "integer"),
        (["--limit", "0"], "--limit=0 is impossible", "integer"),
        (["--streams", "1,1"], "--streams='1,1' is impossible", "such as 1,4"),
        (["--streams", "0"], "--streams='0' is impossible", "such as 1,4"),
        (["--streams", "many"], "--streams='many' is impossible", "such as 1,4"),
        (["--streams", "1,4", "--limit", "3"], "--streams 4, and shipped has 3 prompts to run", "fewer streams"),
        (["--method", "nose"], "there is no method 'nose'", "known methods: plain, auto"),
        (["--method", "ngram:max_draft=-1"], "method ngram: --max_draft=-1", "integer"),
        (["--method", "ngram", "--risk", "0.05"], "--risk 0.05 has nothing to do", "--method calibrated"),
        (["--method", "ngram", "--draft-model", "x"], "--draft-model x has nothing to do", "--method model"),
        (["--exits", "/nowhere"], "/nowhere' is no folder", "offramp train exits"),
        (["--workload", "/nowhere.jsonl"], "can't read /nowhere.jsonl", "JSONL"),
        (["--workload", "shipped", "--workload", "shipped"], "two workloads are called shipped", "rename"),
        (["--raw"], "--raw beside --workload shipped", "name a file of your own, or leave --raw out"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    offramp: RunCommand, args: list[str], message: str, hint: str, tmp_path: Path
) -> None:
    done = offramp("bench", "run", "/no/model", "-o", str(tmp_path / "r.jsonl"), *args)
    assert done.code == 2
    assert message.replace("--max_draft", "max_draft") in done.err
    assert hint in done.err
    assert "loading" not in done.err
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on(offramp: RunCommand, toy_model: str, prompts: str, tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    args = ["bench", "run", toy_model, "--workload", prompts, "-o", str(output), "--max-tokens", "8", "--threads", "1"]
    args += ["--rounds", "200", "--method", "quick:draft=ngram,draft_length=fixed"]
    with subprocess.Popen([sys.executable, "-m", "offramp", *args], stderr=subprocess.DEVNULL) as killed:
        try:
            while killed.poll() is None and not (output.exists() and output.read_bytes().count(b'"turn"') > 20):
                time.sleep(0.01)
        finally:
            killed.kill()
    assert killed.returncode == -signal.SIGKILL
    kept = sum(isinstance(line, TurnLine) for line in read_lines(output))
    assert 20 < kept < 400
    done = offramp(*args[:-3], "60", *args[-2:])
    assert done.code == 0, done.err
    answers = [line for line in read_lines(output) if isinstance(line, ItemLine)]
    assert len({line.token_ids for line in answers if line.item == "one"}) == 1
    assert {line.round for line in answers} >= set(range(60))


def test_each_pack_brings_its_method_where_none_is_named(
    offramp: RunCommand, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []

    def noted(plan: Plan, *args: object) -> list[object]:
        told.append([method.name for method in plan.methods])
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.bench.run.rounds.run_rounds", noted)
    args = ["bench", "run", "/no/model", "--workload", prompts]
    offramp(*args)
    offramp(*args, "--drafter", "off")
    offramp(*args, "--exits", str(tmp_path), "--exit-threshold", "0.9", "--draft-model", "x", "--risk", "0.1")
    offramp(*args, "--drafter", str(tmp_path), "--method", "auto")
    everything = ["plain", "auto", "early_exit", "model", "calibrated", "unchecked"]
    assert told == [["plain", "auto"], ["plain", "auto"], everything, ["plain", "auto"]]


def test_a_model_that_is_not_there(offramp: RunCommand, prompts: str, tmp_path: Path) -> None:
    done = offramp("bench", "run", "/no/model", "--workload", prompts, "-o", str(tmp_path / "r.jsonl"))
    assert done.code == 1
    assert "error: method plain: " in done.err
    assert not (tmp_path / "r.jsonl").exists()


def test_ctrl_c_says_how_to_go_on(
    offramp: RunCommand, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.bench.run.rounds.run_rounds", interrupted)
    done = offramp("bench", "run", "/no/model", "--workload", prompts, "-o", "mine-results.jsonl")
    assert done.code == 130
    assert "stopped; the same command goes on with mine-results.jsonl" in done.err


def test_a_method_that_failed_is_an_error_behind_the_figures(
    offramp: RunCommand, toy_model: str, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from offramp.bench.run.process import MethodProcess

    start = MethodProcess.start

    def failing(process: MethodProcess) -> object:
        if process.method.name == "ngram":
            raise WorkerError("method ngram: gone", hint="look")
        return start(process)

    monkeypatch.setattr(MethodProcess, "start", failing)
    output = tmp_path / "r.jsonl"
    args = ["--workload", prompts, "--rounds", "1", "--limit", "1", "--max-tokens", "4", "--method", "ngram"]
    done = offramp("bench", "run", toy_model, *args, "-o", str(output))
    assert done.code == 1
    assert "error: ngram did not get to the end: method ngram: gone (look)" in done.err
    assert [json.loads(line)["method"] for line in done.out.splitlines()] == ["plain"]
    assert [line.method for line in read_lines(output) if isinstance(line, FailureLine)] == ["ngram"]


def test_what_ran_at_full_depth_is_told_behind_the_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    turns = {"plain": None, "one": "no policy is faster", "two": "no policy is faster"}
    lines: list[Line] = [run_line(*turns)]
    for method, note in turns.items():
        lines += [item_line(method, 0, "x", [(1, 1)]), replace(turn_line(method, 0, 1, 1), note=note)]
    _show(lines, tmp_path / "r.jsonl")
    told = capsys.readouterr()
    assert "note: one, two ran as mode full: no policy is faster\n" in told.err
    assert [json.loads(line)["note"] for line in told.out.splitlines()] == list(turns.values())


def test_lines_of_progress_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(clock=lambda: now[0])
    for seconds in (0.0, 1.0, 9.0, 11.0):
        now[0] = seconds
        lines.turn(f"at {seconds:g}", int(seconds), 20)
        lines.hear(Heard(num_ended=0, num_tokens=1))
    lines.say("always")
    assert capsys.readouterr().err.splitlines() == ["at 0 (0 of 20 answers)", "at 11 (11 of 20 answers)", "always"]
