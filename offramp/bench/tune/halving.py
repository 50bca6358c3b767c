"""Successive halving: all methods on a few prompts, the better half on more, and so on; then a fresh look at the best.

Every round has a turn of plain decoding, so that a busy minute of the machine slows both sides. How many prompts come
next is decided by what turns took so far and the time that is left. The best of many is in part the luckiest: what
selected it says too much of it. So `confirm` measures anew, and its turns alone are what a recommendation rests on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from offramp.bench.run.method import Method
from offramp.bench.tune.rounds import Rounds

KEPT = 2
"""Methods that halving ends with."""
TURN_PROMPTS = 4
"""A stream's prompts of one turn at most: an engine begins each turn anew, and drafters learn in the course of it."""
RUNG_TURNS = 3
"""Of a rung at least, where there is time for so many prompts."""
LEAST_TURNS, MOST_TURNS = 7, 16
"""Of plain decoding and each finalist when they are confirmed: of equal ones one in 128 wins 7 times."""
TOLD_TURNS = 4
"""Between two lines about them."""

Tell = Callable[[str], None]


def halve(methods: Sequence[Method], rounds: Rounds, until: float, tell: Tell) -> list[Method]:
    """The best of them, fastest first, while more than `until` seconds of the budget are left.

    Each has one turn at least. Those with faults are not among them.
    """
    left, since = list(methods), len(rounds.rounds)
    num_rungs = max(1, math.ceil(math.log2(len(left) / KEPT)))
    for rung in range(num_rungs):
        tell(f"trying {', '.join(method.name for method in left)}")
        share = (rounds.seconds_left() - until) / (num_rungs - rung)
        _rung(left, rounds, rounds.seconds_left() - share)
        working = [method for method in left if method.name not in rounds.faults]
        ranked = sorted(working, key=lambda method: -rounds.ratio(method.name, since))
        tell(", ".join(f"{each.name} {rounds.ratio(each.name, since):.2f}" for each in ranked) or "none of them works")
        left = ranked[: max(KEPT, math.ceil(len(left) / 2))]
        rounds.keep(left)
        if not left:
            break
    return left[:KEPT]


def confirm(methods: Sequence[Method], rounds: Rounds, tell: Tell, until: float = 0.0) -> int:
    """Measure them anew until so many seconds are left, `LEAST_TURNS` at least; the number of the first such round."""
    since = len(rounds.rounds)
    starting, each = rounds.predicted(methods)
    count = (rounds.seconds_left() - until - starting) / each
    turns = max(LEAST_TURNS, min(MOST_TURNS, int(count / (TURN_PROMPTS * rounds.streams))))
    size = _whole_streams(count / turns, rounds, most=None)
    for turn in range(turns):
        _, each = rounds.predicted(methods)
        left = rounds.seconds_left() - until
        if turn >= LEAST_TURNS and left < each * size:
            break
        if turn < LEAST_TURNS:  # what turns take is known better now
            size = min(size, _whole_streams(left / each / (LEAST_TURNS - turn), rounds, most=None))
        rounds.play(methods, size)
        if (turn + 1) % TOLD_TURNS == 0:
            tell(f"turn {turn + 1} of {turns}, about {max(0.0, rounds.seconds_left() - until):.0f} s left")
    return since


def least_seconds(methods: Sequence[Method], rounds: Rounds, turns: int) -> float:
    """Seconds for so many turns of each of them, and of plain decoding."""
    starting, each = rounds.predicted(methods)
    return starting + turns * each * rounds.streams


def _rung(methods: Sequence[Method], rounds: Rounds, until: float) -> None:
    starting, each = rounds.predicted(methods)
    count = (rounds.seconds_left() - until - starting) / each
    size = _whole_streams(count / RUNG_TURNS, rounds, most=TURN_PROMPTS)
    for _ in range(max(1, int(count / size))):
        rounds.play(methods, size)
        _, each = rounds.predicted(methods)
        if rounds.seconds_left() - until < each * size:
            break


def _whole_streams(count: float, rounds: Rounds, most: int | None) -> int:
    """So many prompts or fewer, as many for each stream, one at least."""
    for_each = max(1, int(count / rounds.streams))
    return rounds.streams * (for_each if most is None else min(for_each, most))
