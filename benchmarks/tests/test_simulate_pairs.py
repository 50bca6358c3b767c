"""The simulation of larger pairs: by hand at its limits, labelled as what it is, and the docs' table is its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.simulate_pairs import (
    MOST_RUN,
    PAIRS,
    RATES,
    Machine,
    Rounds,
    at_rate,
    lines,
    main,
    rounds_at,
    rounds_of,
    simulate,
    table,
    weights_of,
)

FLAT = Machine(
    source="none", bytes_per_second=2.0, share_of_it=0.5, bytes_per_weight=1.0, rows=((1, 1.0), (2, 1.0), (16, 1.0))
)
"""A pass takes as many seconds as there are weights, whatever the rows."""
DRAFTED = {"num_draft_tokens_per_pos": [10, 8], "num_accepted_tokens_per_pos": [6, 2], "little": None}
WROTE = {"num_draft_tokens_per_pos": [], "little": "m", "num_little_tokens": 30, "num_fallbacks": 6}


def test_a_round_by_hand() -> None:
    """Two tokens for 1 s each and a pass of 10 s bring 1 + 0.5 + 0.25 tokens; the big one alone takes 10 s for one."""
    found = simulate(FLAT, 1.0, 10.0, rounds_at(0.5, 2))
    assert found.tokens_per_second == pytest.approx(1.75 / 12)
    assert found.big_alone == pytest.approx(0.1)
    assert found.gain == pytest.approx(17.5 / 12)


def test_more_rows_take_longer() -> None:
    steep = Machine(
        source="x", bytes_per_second=1.0, share_of_it=1.0, bytes_per_weight=1.0, rows=((1, 1.0), (2, 1.5), (4, 2.5))
    )
    seconds = steep.seconds(10.0)
    assert [seconds(rows) for rows in (1, 1.5, 2, 3, 4)] == pytest.approx([10, 12.5, 15, 20, 25])
    assert simulate(steep, 0.0, 10.0, rounds_at(1.0, 3)).gain == pytest.approx(4 / 2.5)


def test_what_never_stands_never_pays_and_what_always_stands_runs_long() -> None:
    assert at_rate(FLAT, 1.0, 10.0, 0.0).gain == pytest.approx(10 / 11)
    always = at_rate(FLAT, 0.01, 10.0, 1.0)
    assert always.run == MOST_RUN - 1
    assert always.gain == pytest.approx(MOST_RUN * 10 / (10 + 0.15))


def test_gains_rise_with_the_rate_and_with_the_distance_of_sizes() -> None:
    machine = Machine.read()
    gains = [[at_rate(machine, *weights_of(pair), rate).gain for rate in RATES] for pair in PAIRS]
    assert all(row == sorted(row) for row in gains)
    assert all(near < far for near, far in zip(gains[0], gains[1], strict=True))
    assert all(near < far for near, far in zip(gains[2], gains[3], strict=True)), "135M beside 8B, not 360M"


def test_reports_become_rounds() -> None:
    assert rounds_of([DRAFTED]) == Rounds(stood=0.8, written=1.8, passes=1.8)
    assert rounds_of([{**WROTE, "num_rollbacks": 4}]) == Rounds(stood=3.0, written=3.4, passes=4.0)
    plain: dict[str, object] = {"num_draft_tokens_per_pos": [], "num_accepted_tokens_per_pos": [], "little": None}
    assert rounds_of([plain, DRAFTED]) == rounds_of([DRAFTED])


@pytest.mark.parametrize("reports", [[], [{"little": None}], [{**WROTE, "num_rollbacks": "4"}], [WROTE]])
def test_reports_that_tell_nothing_are_refused(reports: list[dict[str, object]]) -> None:
    with pytest.raises(ValueError, match=r"no report|num_rollbacks"):
        rounds_of(reports)


@pytest.mark.parametrize(("rate", "run"), [(-0.1, 3), (1.1, 3), (float("nan"), 3), (0.5, 0), (0.5, MOST_RUN + 1)])
def test_rates_and_runs_out_of_range_are_refused(rate: float, run: int) -> None:
    with pytest.raises(ValueError, match="rate"):
        rounds_at(rate, run)


@pytest.mark.parametrize("pair", ["135M", "135M/2M", "135M/1.7B/8B", ""])
def test_unknown_pairs_are_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="no pair"):
        weights_of(pair)


def test_impossible_rounds_are_a_bug() -> None:
    with pytest.raises(ValueError, match="stand of"):
        Rounds(stood=2.0, written=1.0, passes=1.0)


def test_every_line_says_that_it_is_a_simulation() -> None:
    found = [json.loads(line) for line in lines(Machine.read(), PAIRS, RATES, None)]
    assert len(found) == len(PAIRS) * len(RATES)
    assert all(each["simulation"] is True and each["benchmark"] == "simulated_pair" for each in found)
    [one] = lines(Machine.read(), ["135M/8B"], RATES, rounds_of([DRAFTED]))
    assert json.loads(one)["stood"] == 0.8


def test_the_table_in_the_docs_is_the_commands() -> None:
    page = (Path(__file__).parents[2] / "docs" / "big-little.md").read_text()
    found = table(Machine.read(), PAIRS, RATES)
    assert found in page
    assert found.startswith("| simulated pair ")


def test_the_command_reads_reports_and_refuses_what_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text(f"{json.dumps({'offramp': DRAFTED})}\n\n{json.dumps({'report': DRAFTED})}\n{json.dumps(DRAFTED)}\n")
    monkeypatch.setattr("sys.argv", ["simulate_pairs", "--outcomes", str(path), "--pairs", "135M/8B"])
    main()
    assert json.loads(capsys.readouterr().out)["stood"] == 0.8
    for args, message in (
        (["--outcomes", str(tmp_path / "none")], "No such file"),
        (["--pairs", "1M/2M"], "no pair"),
        (["--rates", "2"], "rate"),
        (["--rates", "x"], "invalid"),
    ):
        monkeypatch.setattr("sys.argv", ["simulate_pairs", *args])
        with pytest.raises(SystemExit):
            main()
        assert message in capsys.readouterr().err
