"""What counts as slower, and what the program makes of it. No clock is read."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.check import __main__ as program
from benchmarks.check.compare import (
    FALSE_ALARMS,
    LEAST_ALLOWED,
    LEAST_RUNS,
    allowed,
    better,
    find,
    findings,
    findings_table,
    other_conditions,
    stored_lines,
    stored_medians,
    too_few,
)
from benchmarks.check.figures import COPYING, FIGURES, PREFILL, ROWS_4
from benchmarks.check.measure import PARTS, SMOKE, by_round, measure
from benchmarks.speculation.contestant import Counts, Sample
from benchmarks.tests.test_session import FACTS
from benchmarks.tests.test_speculation import CHEAP
from offramp.testing.models import chat_tokenizer, scripted_model

VOCAB = chat_tokenizer().vocab_size
QUIET = FACTS | {"model": "smollm2-135m", "weights": "q8"}
STORED = {COPYING.name: [1.6] * 5, ROWS_4.name: [1.3] * 5}
BY_PART = {"drafting": {COPYING.name: [1.6]}, "rows": {ROWS_4.name: [1.3]}}


def noise(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Every logit depends on the last tokens: drafts rarely stand."""
    return np.random.default_rng(history[-8:]).standard_normal(VOCAB, dtype=np.float32)


@pytest.mark.parametrize(
    ("figure", "now", "loss"),
    [(COPYING, 1.6, 0.0), (COPYING, 0.8, 1.0), (COPYING, 3.2, -0.5), (ROWS_4, 3.2, 1.0), (ROWS_4, 0.8, -0.5)],
)
def test_a_loss_is_the_time_that_things_take_longer(figure: object, now: float, loss: float) -> None:
    assert figure in (COPYING, ROWS_4)
    found = find(COPYING if figure == COPYING else ROWS_4, [1.6, 1.6, 1.6], [now, now, now])
    assert found.loss == pytest.approx(loss)
    assert (found.slower, found.faster) == (loss > 0, loss < 0)


def test_what_is_allowed_is_how_far_runs_lie_apart() -> None:
    assert allowed([2.0] * 5) == LEAST_ALLOWED
    apart = [2 * math.exp(0.1 * each) for each in (-2, -1, 0, 1, 2)]
    assert math.log1p(allowed(apart)) == pytest.approx(3.747 * math.sqrt(0.025) * math.sqrt(1.2), rel=0.01)
    assert allowed([*apart, *apart]) < allowed(apart), "more runs tell more"


@pytest.mark.parametrize(("now", "slower"), [(1.099, False), (1.101, True)])
def test_the_line_is_drawn_at_what_is_allowed(now: float, slower: bool) -> None:
    assert find(PREFILL, [1.0] * 5, [now] * 5).slower == slower


@pytest.mark.parametrize("spread", [0.02, 0.08])
def test_another_run_of_the_same_code_is_seldom_slower(spread: float) -> None:
    """Whatever runs differ by: at most twice as often as is meant to be. One that takes twice as long is found."""
    draw = np.random.default_rng(0)
    runs = draw.lognormal(0.0, spread, (2000, LEAST_RUNS + 1)).tolist()
    assert sum(find(PREFILL, stored, [now]).slower for *stored, now in runs) <= 2 * FALSE_ALARMS * len(runs)
    assert sum(find(PREFILL, stored, [2 * now]).slower for *stored, now in runs) >= 0.98 * len(runs)


def test_only_what_both_have_is_compared() -> None:
    assert [each.figure.name for each in findings(STORED, {ROWS_4.name: [1.0], PREFILL.name: [1.0]})] == [ROWS_4.name]


def test_of_two_runs_the_better_one_counts() -> None:
    both = better(
        {COPYING.name: [1.0], ROWS_4.name: [1.0]}, {COPYING.name: [2.0], ROWS_4.name: [2.0], "rows-16": [3.0]}
    )
    assert both == {COPYING.name: [2.0], ROWS_4.name: [1.0], "rows-16": [3.0]}


def test_lines_keep_a_run() -> None:
    run = {COPYING.name: [1.5, 1.6, 1.9], ROWS_4.name: [1.3]}
    lines = [json.loads(json.dumps(line)) for line in stored_lines(run)]
    assert [line["better"] for line in lines] == ["more", "less"]
    assert [line["rounds"] for line in lines] == [*run.values()]
    assert stored_medians(lines * LEAST_RUNS) == STORED
    assert stored_medians([*lines * LEAST_RUNS, lines[0] | {"figure": "of another version"}]) == STORED
    some = [*lines * (LEAST_RUNS - 1), lines[0], lines[0] | {"figure": "of another version"}]
    assert stored_medians(some) == {COPYING.name: STORED[COPYING.name]}
    assert too_few(some) == [ROWS_4.name]


def test_other_machines_are_named() -> None:
    assert other_conditions(QUIET, QUIET | {"commit": "1", "load_at_start": [9.0]}) == []
    assert other_conditions(QUIET, QUIET | {"cores": 8, "weights": "q4"}) == ["cores 2, not 8", "weights q8, not q4"]


def test_the_table_says_which() -> None:
    rows = findings_table(findings(STORED, {COPYING.name: [1.2], ROWS_4.name: [1.0]})).splitlines()
    assert rows[2] == "| copying | 1.600 | 1.200 | +33.3% | 10.0% | slower |"
    assert rows[3].endswith("| -23.1% | 10.0% | faster |")


def test_ratios_are_of_seconds_a_token() -> None:
    def sample(seconds: float, decoded: int) -> Sample:
        return Sample([[0] * (decoded + 1)], 1.0, 1.0 + seconds, decoded, Counts.__new__(Counts))

    assert by_round([[sample(2, 4), sample(4, 8)]], [[sample(1, 4), sample(1, 4)]]) == [2.0]


def test_every_figure_is_measured() -> None:
    loaded = scripted_model(noise, num_pages=160)
    told = measure(loaded, CHEAP, SMOKE, list(PARTS))
    assert sorted(name for part in told.values() for name in part) == sorted(FIGURES)
    assert all(len(rounds) == SMOKE.rounds and min(rounds) > 0 for part in told.values() for rounds in part.values())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The program with words, over runs whose ratios are given; returns its exit code."""
    monkeypatch.setattr(program, "run_provenance", lambda root, name: dict(QUIET))
    monkeypatch.setattr(program, "load_model", lambda *args, **kwargs: None)
    monkeypatch.setattr(program, "fresh_costs", lambda loaded: None)

    def start(words: list[str], *told: dict[str, dict[str, list[float]]]) -> int:
        runs = iter(told)

        def once(loaded: object, table: object, size: object, parts: list[str]) -> dict[str, dict[str, list[float]]]:
            found = next(runs)
            return {name: found[name] for name in parts if name in found}

        monkeypatch.setattr(program, "measure", once)
        monkeypatch.setattr(sys, "argv", ["check", "--stored", str(tmp_path / "check.jsonl"), *words])
        with pytest.raises(SystemExit) as end:
            program.main()
        assert next(runs, None) is None, "fewer runs than expected"
        assert isinstance(end.value.code, int)
        return end.value.code

    return start


def store(run: Callable[..., int]) -> None:
    """As many runs as are needed."""
    assert [run(["--store"], BY_PART) for _ in range(LEAST_RUNS)] == [0] * LEAST_RUNS


def test_what_was_stored_is_not_slower(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    store(run)
    assert run([], BY_PART) == 0
    assert "nothing is slower (2 figures)" in capsys.readouterr().out


def test_what_is_slower_is_named_and_ends_with_1(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    store(run)
    slow = BY_PART | {"drafting": {COPYING.name: [1.2], PREFILL.name: [9.0]}}
    assert run([], slow, slow) == 1
    told = capsys.readouterr().out
    assert "slower: copying (tokens a second of auto" in told
    assert "1.600 was stored, now 1.200; that takes 33% longer, 10% are allowed" in told
    assert "nothing stored: prefill" in told
    assert "slower: rows" not in told


def test_figures_of_too_few_stored_runs_are_named(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    store(run)
    new = BY_PART | {"drafting": {COPYING.name: [1.6], PREFILL.name: [1.0]}}
    assert run(["--store"], new) == 0
    assert "not compared" not in capsys.readouterr().err
    assert run([], new | {"rows": {ROWS_4.name: [1.3], "rows-16": [1.3]}}) == 0
    told = capsys.readouterr()
    assert "not compared, of fewer than 5 stored runs: prefill\n" in told.err
    assert "nothing stored: prefill" not in told.out
    assert "nothing stored: rows-16" in told.out
    assert "nothing is slower (2 figures)" in told.out


def test_a_burst_is_measured_again(run: Callable[..., int]) -> None:
    store(run)
    assert run([], BY_PART | {"rows": {ROWS_4.name: [1.9]}}, BY_PART) == 0


def test_without_ratios_of_such_a_machine_nothing_is_compared(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "check.jsonl").write_text("")
    assert run([]) == 2
    run(["--store"], BY_PART)
    assert run([]) == 2
    assert f"holds fewer than {LEAST_RUNS} runs" in capsys.readouterr().err
    for words in ([], ["--store"]):
        assert run([*words, "--threads", "1"]) == 2
        assert "threads 2, not 1" in capsys.readouterr().err


def test_a_smoke_run_compares_and_keeps_nothing(run: Callable[..., int], tmp_path: Path) -> None:
    assert run(["--smoke"], BY_PART) == 0
    assert not (tmp_path / "check.jsonl").exists()


@pytest.mark.parametrize("words", [["--smoke", "--store"], ["--rounds", "0"], ["--threads", "0"]])
def test_impossible_arguments_are_refused(words: list[str], run: Callable[..., int]) -> None:
    assert run(words) == 2
