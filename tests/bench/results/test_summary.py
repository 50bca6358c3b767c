"""Cells of lines made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offramp.bench.results.cells import Cell, Interval
from offramp.bench.results.lines import Line, TurnLine
from offramp.bench.results.summary import cells
from tests.bench.results.made import failure_line, item_line, run_line, score_line, turn_line


def by_name(lines: list[Line]) -> dict[tuple[str, str, int], Cell]:
    return {(cell.method, cell.task, cell.streams): cell for cell in cells(lines)}


def two_methods() -> list[Line]:
    """Plain decoding: 100 ms, then 10 ms a token, and 20 ms. The other: in half of it, two tokens a step."""
    lines: list[Line] = [run_line("plain", "auto", rounds=2)]
    for number in range(2):
        lines += [
            item_line("plain", number, "one", [(100, 1), (110, 1), (120, 1), (130, 1), (140, 1)]),
            item_line("plain", number, "two", [(200, 1), (220, 1), (240, 1)], task="b"),
            turn_line("plain", number, 0.38, 8, joules=16.0, peak=1000 + number),
            replace(
                item_line("auto", number, "one", [(100, 1), (110, 2), (120, 2)]),
                drafted=(2, 1),
                accepted=(2, 0),
                reached=(2, 1),
                num_drafts=2,
                num_emitted=4,
            ),
            item_line("auto", number, "two", [(200, 1), (220, 2)], task="b", ids=(0, 1, 7)),
            turn_line("auto", number, 0.34, 8, joules=8.0),
        ]
    return lines


def test_speed_from_items_at_one_stream() -> None:
    told = by_name(two_methods())
    plain, auto = told["plain", "all", 1], told["auto", "all", 1]
    assert plain.decode_rate.value == pytest.approx(6 / 0.08)
    assert auto.decode_rate.value == pytest.approx(6 / 0.04)
    assert plain.total_rate.value == pytest.approx(8 / 0.38)
    assert auto.decode_ratio is not None
    assert auto.decode_ratio.value == pytest.approx(2.0)
    assert auto.total_ratio is not None
    assert auto.total_ratio.value == pytest.approx(0.38 / 0.34)
    assert plain.decode_ratio is None
    assert plain.total_ratio is None
    assert plain.first_ms.value == 150.0
    assert plain.token_ms["median"] == 10.0
    assert plain.token_ms["p99"] == pytest.approx(20.0)
    assert auto.token_ms["median"] == pytest.approx(5.0)
    assert (plain.num_items, plain.num_failed, plain.rounds, plain.output_tokens) == (2, 0, 2, 8)
    assert told["plain", "a", 1].decode_rate.value == pytest.approx(100)
    assert told["plain", "b", 1].decode_rate.value == pytest.approx(50)


def test_drafts_equality_memory_and_energy() -> None:
    told = by_name(two_methods())
    plain, auto = told["plain", "all", 1], told["auto", "all", 1]
    assert auto.acceptance_rate == pytest.approx(2 / 3)
    assert auto.acceptance_length == 2.0
    assert auto.accepted_per_pos == (1.0, 0.0)
    assert (plain.acceptance_rate, plain.acceptance_length, plain.accepted_per_pos) == (None, None, ())
    assert (plain.equal_share, auto.equal_share) == (1.0, 0.5)
    assert (told["auto", "a", 1].equal_share, told["auto", "b", 1].equal_share) == (1.0, 0.0)
    assert (plain.peak_bytes, auto.peak_bytes) == (1001, None)
    assert plain.joules_per_token == Interval(2.0, 2.0, 2.0)
    assert told["plain", "a", 1].joules_per_token is None


def test_an_answer_counts_as_equal_only_if_it_is_in_all_rounds() -> None:
    lines = two_methods()
    lines[-3] = item_line("auto", 1, "one", [(100, 1), (110, 2), (120, 2)], ids=(0, 1, 2, 3, 9))
    assert by_name(lines)["auto", "a", 1].equal_share == 0.0


def test_exits() -> None:
    lines = two_methods()
    lines[-3] = replace(lines[-3], exit_layers=(2, 2, 4, 4, 4))  # type: ignore[type-var]
    lines[-6 - 3] = replace(lines[-9], exit_layers=(2, 2, 4, 4, 4))  # type: ignore[type-var]
    cell = by_name(lines)["auto", "all", 1]
    assert cell.exit_counts == {2: 2, 4: 3}
    assert cell.mean_exit_layer == pytest.approx(16 / 5)


def test_why_a_method_ran_at_full_depth_is_told_of_each_of_its_cells() -> None:
    noted = [
        replace(line, note=f"reason {line.round // 2}")
        if isinstance(line, TurnLine) and line.method == "auto"
        else line
        for line in two_methods()
    ]
    told = by_name(noted)
    assert {cell.note for cell in told.values() if cell.method == "auto"} == {"reason 0"}, "once for all rounds"
    assert {cell.note for cell in told.values() if cell.method == "plain"} == {None}


def test_quality_is_paired_by_items() -> None:
    scores = {("plain", "one"): 1.0, ("plain", "two"): 0.0, ("auto", "one"): 0.5, ("auto", "two"): 0.0}
    lines = [*two_methods(), *(score_line(method, item, value) for (method, item), value in scores.items())]
    told = by_name(lines)
    auto = told["auto", "all", 1]
    assert auto.quality["rouge_l"].value == 0.25
    assert auto.plain_quality["rouge_l"].value == 0.5
    assert auto.quality_change["rouge_l"].value == -0.25
    assert told["auto", "a", 1].quality["rouge_l"] == Interval(0.5, 0.5, 0.5)
    assert told["plain", "all", 1].quality_change == {}


def test_of_perplexities_the_logarithm_is_averaged() -> None:
    values = {("plain", "one"): 2.0, ("plain", "two"): 200.0, ("auto", "one"): 4.0, ("auto", "two"): 400.0}
    scores = [score_line(method, item, value, "perplexity") for (method, item), value in values.items()]
    cell = by_name([*two_methods(), *scores])["auto", "all", 1]
    assert cell.plain_quality["perplexity"].value == pytest.approx(20.0)
    assert cell.quality["perplexity"].value == pytest.approx(40.0)
    change = cell.quality_change["perplexity"]
    assert (change.value, change.low, change.high) == pytest.approx((20.0, 20.0, 20.0))


def test_an_item_that_failed_in_a_round_counts_in_none_and_is_told() -> None:
    lines = two_methods()
    lines[-2] = failure_line("auto", 1, "two")
    told = by_name(lines)
    auto = told["auto", "all", 1]
    assert (auto.num_items, auto.num_failed) == (1, 1)
    assert auto.total_ratio is not None
    assert auto.total_ratio.value == pytest.approx(0.14 / 0.12)  # of the item that both answered
    assert ("auto", "b", 1) not in told
    assert told["plain", "all", 1].num_items == 2


def test_a_method_that_stopped_on_the_way_is_compared_with_nothing() -> None:
    lines = two_methods()[:-3]
    interrupted = by_name(lines)["auto", "all", 1]
    assert interrupted.rounds == 1
    assert interrupted.decode_ratio is not None  # by the round that both did
    dropped = by_name([*lines, failure_line("auto", 1, None)])["auto", "all", 1]
    assert dropped.rounds == 1
    assert dropped.decode_rate.value == pytest.approx(6 / 0.04)
    assert (dropped.decode_ratio, dropped.total_ratio) == (None, None)


def test_a_method_that_stopped_elsewhere_is_compared_where_it_did_all() -> None:
    lines = [*two_methods(), failure_line("auto", 1, None, streams=4)]
    lines[0] = run_line("plain", "auto", rounds=2, streams=(1, 4))
    told = by_name(lines)
    assert told["auto", "all", 1].decode_ratio is not None
    assert ("auto", "all", 4) not in told


def test_several_streams_by_whole_turns_and_tasks_by_their_part_of_the_time() -> None:
    lines: list[Line] = [run_line("plain", "auto", streams=(4,))]
    for method, pace in (("plain", 2.0), ("auto", 1.0)):
        for place, task in enumerate("aabb"):
            steps = [(100 * pace, 1), (140 * pace, 1)]
            lines.append(item_line(method, 0, f"{place}", steps, task=task, streams=4))
        lines.append(turn_line(method, 0, 0.16 * pace, 8, streams=4, decode=(0.04 * pace, 4)))
    told = by_name(lines)
    auto = told["auto", "all", 4]
    assert auto.decode_rate == Interval(100.0, 100.0, 100.0)
    assert auto.total_rate.value == pytest.approx(50.0)
    assert auto.decode_ratio == Interval(2.0, 2.0, 2.0)
    task = told["auto", "a", 4]
    assert task.decode_rate.value == pytest.approx(2 / (2 * 0.04 / 4))
    assert task.total_rate.value == pytest.approx(4 / (2 * 0.14 / 4))


def test_no_more_requests_share_the_time_than_were_answered() -> None:
    lines: list[Line] = [run_line("plain", streams=(16,))]
    lines += [item_line("plain", 0, task, [(100, 1), (140, 1)], task=task, streams=16) for task in "ab"]
    lines += [failure_line("plain", 0, "c", streams=16), turn_line("plain", 0, 0.14, 4, streams=16)]
    assert by_name(lines)["plain", "a", 16].total_rate.value == pytest.approx(2 / (0.14 / 2))


def test_whole_turns_of_other_items_are_not_compared() -> None:
    lines: list[Line] = [run_line("plain", "auto", streams=(4,))]
    lines += [
        item_line("plain", 0, "0", [(1, 1), (2, 1)], streams=4),
        item_line("plain", 0, "1", [(1, 1), (2, 1)], streams=4),
    ]
    lines += [turn_line("plain", 0, 1.0, 4, streams=4)]
    lines += [item_line("auto", 0, "0", [(1, 1), (2, 1)], streams=4), failure_line("auto", 0, "1", streams=4)]
    lines += [turn_line("auto", 0, 0.5, 2, streams=4)]
    cell = by_name(lines)["auto", "all", 4]
    assert (cell.num_items, cell.num_failed, cell.total_ratio) == (1, 1, None)


def test_answers_of_one_token() -> None:
    lines: list[Line] = [run_line("plain", "auto")]
    for method in ("plain", "auto"):
        lines += [item_line(method, 0, "one", [(100, 1)]), turn_line(method, 0, 0.1, 1)]
    told = by_name(lines)
    cell = told["auto", "all", 1]
    assert cell.decode_rate == Interval(0.0, 0.0, 0.0)
    assert cell.decode_ratio is None
    assert cell.total_ratio == Interval(1.0, 1.0, 1.0)
    assert cell.token_ms == {}
    assert ("auto", "a", 1) not in told  # a single task is the same as all


def test_nothing_was_run() -> None:
    assert cells([run_line("plain")]) == []
