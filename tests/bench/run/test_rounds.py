"""Who comes when, what is written, what becomes of methods that fail, and what a run goes on with."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from offramp.bench.results.file import read_lines
from offramp.bench.results.lines import CostLine, FailureLine, ItemLine, Line, RunLine, ScoreLine, TurnLine
from offramp.bench.results.summary import cells
from offramp.bench.run.method import Method, methods_of
from offramp.bench.run.process import MethodProcess, WorkerError
from offramp.bench.run.rounds import Due, lines_of, order, run_rounds
from offramp.bench.run.turn import Facts, Failed, Turn
from offramp.bench.workloads.item import Item
from offramp.errors import InvalidRequestError
from offramp.llm.model_flags import ModelFlags
from tests.bench.run.acted import FACTS, TAKEN, Silent, Stage, plan, workload
from tests.bench.run.fakes import PRELUDE


def test_a_pack_that_was_made_anew_makes_another_run(tmp_path: Path) -> None:
    pack, path = tmp_path / "pack", tmp_path / "r.jsonl"
    pack.mkdir()
    (pack / "config.json").write_text("{}")
    with_pack = replace(plan(), methods=methods_of(["early_exit"], ModelFlags(exits=str(pack))))
    first = run_rounds(with_pack, path, Silent(), start=Stage())
    assert run_rounds(with_pack, path, Silent(), start=Stage()) == first
    (pack / "config.json").write_text("{ }")
    with pytest.raises(InvalidRequestError, match=r"holds another run: packs was .* and is "):
        run_rounds(with_pack, path, Silent(), start=Stage())
    assert isinstance(first[0], RunLine)
    assert f"'{pack}': " in str(first[0].provenance["packs"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def turns(lines: Sequence[Line]) -> list[tuple[str, str, int, int]]:
    return [(line.workload, line.method, line.streams, line.round) for line in lines if isinstance(line, TurnLine)]


def test_everybody_begins_and_waits_as_often() -> None:
    names = ["plain", "a", "b"]
    orders = [order(names, number) for number in range(6)]
    assert orders[:3] == [["plain", "a", "b"], ["a", "b", "plain"], ["b", "plain", "a"]]
    assert Counter(each[0] for each in orders) == dict.fromkeys(names, 2)
    assert Counter(each[-1] for each in orders) == dict.fromkeys(names, 2)
    assert orders[3:] == [each[::-1] for each in orders[:3]]
    assert order(["plain"], 5) == ["plain"]
    for count in (2, 5):
        turns_of = [order(range(count), number) for number in range(2 * count)]
        assert {sum(each.index(name) for each in turns_of) for name in range(count)} == {count * (count - 1)}


def test_a_run_writes_every_turn_of_every_round(path: Path) -> None:
    stage, wanted = Stage(), plan("ngram", rounds=2, streams=(1, 4), workloads=2)
    lines = run_rounds(wanted, path, Silent(), start=stage)
    assert lines == read_lines(path)
    expected = [
        (f"w{work}", method, streams, number)
        for number in range(2)
        for place, (work, streams) in enumerate([(0, 1), (0, 4), (1, 1), (1, 4)])
        for method in order(["plain", "ngram"], number + place)
    ]
    assert turns(lines) == expected
    assert stage.open == set()
    assert stage.log[:2] == [("plain", "1", "8"), ("ngram", "1", "8")]  # both are warm before one is measured
    assert stage.log[-1] == ("plain", "costs")  # last: it takes memory of its own
    texts = {(line.streams, line.round) for line in lines if isinstance(line, ItemLine) and line.text is not None}
    assert texts == {(1, 0)}


def test_every_cell_of_the_lines_has_its_ratio(path: Path) -> None:
    told = cells(run_rounds(plan("ngram", streams=(1, 4)), path, Silent(), start=Stage()))
    assert {(cell.method, cell.task, cell.streams) for cell in told} == {
        (method, task, streams) for method in ("plain", "ngram") for task in ("all", "a", "b") for streams in (1, 4)
    }
    assert all(cell.total_ratio is not None for cell in told if cell.method == "ngram")


def test_answers_are_scored_once_after_the_first_round(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[str, str]] = []

    def contains(item: Item, text: str) -> float:
        judged.append((item.name, text))
        return float(text in item.references)

    monkeypatch.setattr("offramp.bench.run.scoring.METRICS", {"contains": contains})
    lines = run_rounds(plan("ngram", "suffix", rounds=3), path, Silent(), start=Stage())
    scores = {(line.method, line.item): line.value for line in lines if isinstance(line, ScoreLine)}
    assert scores == {("plain", "one"): 1.0, ("ngram", "one"): 0.0, ("suffix", "one"): 0.0}
    assert judged == [("one", "red"), ("one", "green")]  # equal answers once, items without a metric never
    first = next(place for place, line in enumerate(lines) if isinstance(line, ScoreLine))
    assert {key[3] for key in turns(lines[:first])} == {0}


def test_a_metric_that_cannot_be_had_is_told_and_the_run_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(item: Item, text: str) -> float:
        raise WorkerError("no sandbox", hint="none")

    monkeypatch.setattr("offramp.bench.run.scoring.METRICS", {"contains": broken})
    teller = Silent()
    lines = run_rounds(plan("ngram"), path, teller, start=Stage())
    assert len(turns(lines)) == 4
    assert not any(isinstance(line, ScoreLine) for line in lines)
    assert "note: no contains for w0: no sandbox" in teller.said


def test_weights_are_judged_once_for_all_who_share_them(path: Path) -> None:
    stage, wanted = Stage(), replace(plan("ngram", "q4:draft=off,weights=q4", rounds=1), perplexity=True)
    lines = run_rounds(wanted, path, Silent(), start=stage)
    scores = [line for line in lines if isinstance(line, ScoreLine) and line.metric == "perplexity"]
    assert {(line.method, line.item): line.value for line in scores} == {
        ("plain", "one"): 3.0,
        ("ngram", "one"): 3.0,
        ("q4", "one"): 4.0,
    }
    assert [each for each in stage.log if each[1] == "perplexities"] == [
        ("plain", "perplexities"),
        ("q4", "perplexities"),
    ]
    again = Stage()
    assert run_rounds(wanted, path, Silent(), start=again) == lines
    assert again.log == []


@pytest.mark.parametrize(
    ("costs", "note"),
    [("error", "note: figures are missing: method plain: no room"), ("none", "note: no costs of steps: K/V memory")],
)
def test_figures_of_the_model_that_are_missing_cost_no_turn(
    path: Path, costs: Literal["none", "error"], note: str
) -> None:
    teller = Silent()
    lines = run_rounds(plan("ngram"), path, teller, start=Stage(costs=costs))
    assert len(turns(lines)) == 4
    assert not any(isinstance(line, CostLine | FailureLine) for line in lines)
    assert any(text.startswith(note) for text in teller.said)
    again = run_rounds(plan("ngram"), path, Silent(), start=Stage())
    assert sum(isinstance(line, CostLine) for line in again) == 5


@pytest.mark.parametrize(("turn", "rounds"), [(0, 0), (1, 0), (2, 0), (3, 1)])
def test_a_method_that_fails_is_dropped_and_told(path: Path, turn: int, rounds: int) -> None:
    teller, stage = Silent(), Stage(fails={"ngram": turn})
    lines = run_rounds(plan("ngram", "suffix", rounds=3), path, teller, start=stage)
    assert Counter(method for _, method, _, _ in turns(lines)) == {"plain": 3, "suffix": 3} | (
        {"ngram": rounds} if rounds else {}
    )
    [failure] = [line for line in lines if isinstance(line, FailureLine)]
    assert (failure.method, failure.item, failure.round) == ("ngram", None, rounds)
    assert failure.reason == "method ngram: gone (look)"
    assert any("go on without it" in text for text in teller.said)
    assert all(cell.total_ratio is None for cell in cells(lines) if cell.method == "ngram")
    again = Stage()
    assert run_rounds(plan("ngram", "suffix", rounds=3), path, teller, start=again) == lines
    assert again.num_turns.keys() == {"plain"}
    assert any(text.startswith("ngram is left out: it failed before") for text in teller.said)


def test_without_plain_decoding_there_is_no_run(path: Path) -> None:
    for turn in (0, 1, 3):
        stage = Stage(fails={"plain": turn})
        with pytest.raises(WorkerError, match="method plain: gone"):
            run_rounds(plan("ngram"), path, Silent(), start=stage)
        assert stage.open == set()
    lines = run_rounds(plan("ngram"), path, Silent(), start=Stage())
    assert len(turns(lines)) == 4
    assert not any(isinstance(line, FailureLine) for line in lines)


def test_a_run_goes_on_with_what_is_missing_in_the_same_order(path: Path) -> None:
    whole = turns(run_rounds(plan("ngram", rounds=3), path, Silent(), start=Stage()))
    data = path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(data), 3):
        path.write_bytes(b"".join(data[:kept]))
        stage, teller = Stage(), Silent()
        lines = run_rounds(plan("ngram", rounds=3), path, teller, start=stage)
        assert turns(lines) == whole
        assert sum(isinstance(line, CostLine) for line in lines) == 5
        assert sum(isinstance(line, ScoreLine) for line in lines) == 2
        assert sum(isinstance(line, RunLine) for line in lines) == 1
    done = {text for text, _, _ in teller.turns}
    assert len(done) < len(whole)


def test_more_rounds_are_added_and_a_finished_run_runs_nothing(path: Path) -> None:
    run_rounds(plan("ngram", rounds=1), path, Silent(), start=Stage())
    before = path.read_bytes()
    stage = Stage()
    run_rounds(plan("ngram", rounds=1), path, Silent(), start=stage)
    assert path.read_bytes() == before
    assert stage.num_turns == {"plain": 1}  # loaded, for what it tells of the model
    lines = run_rounds(plan("ngram", rounds=2), path, Silent(), start=Stage())
    assert len(turns(lines)) == 4


def test_progress_counts_items(path: Path) -> None:
    teller = Silent()
    run_rounds(plan("ngram", rounds=2, streams=(1, 4)), path, teller, start=Stage())
    assert [(done, of) for _, done, of in teller.turns] == [(2 * number, 16) for number in range(8)]
    assert teller.turns[0][0] == "round 1 of 2: w0, plain"
    assert teller.turns[3][0] == "round 1 of 2: w0, plain at 4 streams"


def test_what_makes_a_comparison_unfair_is_told(path: Path) -> None:
    teller = Silent()
    lines = run_rounds(plan("ngram", rounds=1), path, teller, start=Stage(note="no certified policy is faster"))
    assert "note: ngram runs as mode full: no certified policy is faster" in teller.said
    notes = {line.method: line.note for line in lines if isinstance(line, TurnLine)}
    assert notes["ngram"] == "no certified policy is faster"
    assert read_lines(path) == lines


def test_prompts_for_a_template_that_is_not_there(path: Path) -> None:
    facts = Facts(**{name: getattr(FACTS, name) for name in FACTS.__slots__} | {"chat": False})
    with pytest.raises(InvalidRequestError, match="has no chat template") as caught:
        run_rounds(plan("ngram"), path, Silent(), start=Stage(facts=facts))
    assert "--raw" in caught.value.hint
    assert not path.exists()


def test_failures_of_items_are_lines(path: Path) -> None:
    turn = Turn(taken=TAKEN, answers=(), failed=(Failed(item="one", reason="too long"), Failed(item="two", reason="x")))
    due = Due(workload(), 1, 0, methods_of([], ModelFlags())[0])
    first, second, last = lines_of(due, turn)
    assert isinstance(first, FailureLine)
    assert (first.item, first.reason) == ("one", "too long")
    assert isinstance(second, FailureLine)
    assert isinstance(last, TurnLine)


CRASHES = "for number, request in enumerate(requests()): answer(request) if number < 3 else os.kill(os.getpid(), 9)"
LIVES = """
for request in requests():
    if "turn" in request:
        answer(request)
    else:
        say(end={})
"""


def test_a_real_process_that_is_killed(path: Path) -> None:
    def start(method: Method, model: str) -> MethodProcess:
        program = CRASHES if method.name == "ngram" else LIVES
        return MethodProcess(method, model, command=(sys.executable, "-S", "-c", PRELUDE + program))

    lines = run_rounds(plan("ngram", rounds=4), path, Silent(), start=start)
    assert Counter(method for _, method, _, _ in turns(lines)) == {"plain": 4, "ngram": 2}
    [failure] = [line for line in lines if isinstance(line, FailureLine)]
    assert "was killed by SIGKILL" in failure.reason
