"""The number of threads follows what steps take, with scripted times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offramp.native.thread_choice import ADAPTIVE_ROWS, LONGEST_CROWDED, LONGEST_INTERVAL, ThreadChoice

Takes = Callable[[int], float]  # threads -> seconds


def steps(choice: ThreadChoice, takes: Takes, count: int, rows: int = 1) -> list[int]:
    used = []
    for _ in range(count):
        threads = choice.choose(rows)
        used.append(threads)
        choice.observe(rows, takes(threads))
    return used


def scaling(threads: int) -> float:
    return 1.0 / threads


def crowded(threads: int) -> float:
    return 1.0 if threads == 1 else 3.4


@pytest.mark.parametrize(
    ("most", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_counts(most: int, counts: list[int]) -> None:
    assert ThreadChoice(most).counts == counts
    assert ThreadChoice(most).choose(1) == most


def test_threads_that_help_are_kept_and_tries_get_rare() -> None:
    choice = ThreadChoice(8)
    used = steps(choice, scaling, 20_000)
    assert used.count(8) > 0.99 * len(used)
    assert set(used) == {4, 8}, "only the neighbour is tried"
    assert 4 in used[-LONGEST_INTERVAL - 10 :], "but it is tried for ever"


def test_a_crowded_machine_is_noticed_at_once_and_left_when_it_calms() -> None:
    choice = ThreadChoice(2)
    steps(choice, scaling, 5_000)
    used = steps(choice, crowded, 200)
    assert used[:30].count(2) < 20
    assert used[40:].count(2) <= 12
    after = steps(choice, scaling, 3 * LONGEST_INTERVAL)
    assert after[-100:] == [2] * 100


def test_it_climbs_down_the_ladder() -> None:
    choice = ThreadChoice(8)
    used = steps(choice, lambda threads: 1.0 + 0.2 * threads, 500)
    assert used[-1] == 1


def test_a_small_gain_does_not_switch() -> None:
    choice = ThreadChoice(2)
    used = steps(choice, lambda threads: 0.97 if threads == 1 else 1.0, 3_000)
    assert used[-1] == 2


def test_row_counts_learn_apart_and_large_steps_never_try() -> None:
    choice = ThreadChoice(2)
    steps(choice, lambda threads: 1.0 + 0.2 * threads, 300, rows=1)
    assert (choice.choose(1), choice.choose(2), choice.choose(16)) == (1, 2, 2)
    assert set(steps(choice, crowded, 300, rows=ADAPTIVE_ROWS + 1)) == {2}


def test_one_slow_call_is_forgiven() -> None:
    choice = ThreadChoice(2)
    steps(choice, scaling, 2_000)
    slow = iter([50.0])
    used = steps(choice, lambda threads: next(slow, scaling(threads)), 100)
    assert used[-1] == 2


def test_a_size_that_is_rare_hears_from_the_others_that_a_neighbour_came_or_went() -> None:
    choice = ThreadChoice(2)
    steps(choice, scaling, 10, rows=8)
    steps(choice, crowded, 300, rows=1)
    assert (choice.choose(1), choice.choose(8)) == (1, 1)
    steps(choice, scaling, 2 * LONGEST_CROWDED, rows=1)
    assert (choice.choose(1), choice.choose(8)) == (2, 2)


def test_what_suits_one_size_alone_stays_with_it() -> None:
    choice = ThreadChoice(4)
    steps(choice, scaling, 10, rows=16)
    steps(choice, lambda threads: 1.0 + 0.1 * threads, 300, rows=1)
    assert (choice.choose(1), choice.choose(16)) == (1, 4)
