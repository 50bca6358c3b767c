"""Values that no line of a run can have: found when a file is read, before figures are made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise

from offramp.bench.results.lines import PERPLEXITY, ItemLine, Line, RunLine, ScoreLine
from offramp.json_depth import MOST_LEVELS, is_too_deep
from offramp.params import shown

MOST = 1e100
"""Of a number among the facts of a run."""
POSITIVE = frozenset({"streams", "max_tokens"})
GEOMETRIC = frozenset({PERPLEXITY})
"""Metrics whose logarithm is averaged, as a single prompt may have a huge one; they are above 0."""


def check_line(line: Line) -> None:
    """A line as it was read. Raises ValueError naming the field."""
    if isinstance(line, ScoreLine):
        if line.metric in GEOMETRIC and not line.value > 0:
            raise ValueError(f"{line.metric} is {line.value:g}")
        return
    for each in fields(line):
        value = getattr(line, each.name)
        least = 1 if each.name in POSITIVE else 0
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int | float) and number < least for number in numbers):
            raise ValueError(f"{each.name} is {shown(value)}")
    if isinstance(line, ItemLine):
        _check_steps(line)
    if isinstance(line, RunLine):
        _check_facts(line)


def _check_steps(line: ItemLine) -> None:
    """There is one at least, each brought tokens, and none came before the one before it."""
    times, counts = [0.0, *(time for time, _ in line.steps)], [count for _, count in line.steps]
    if min(counts, default=0) < 1 or any(now < before for before, now in pairwise(times)):
        raise ValueError(f"steps is {shown(line.steps)}")
    if counts[0] > len(line.token_ids):
        raise ValueError(f"token_ids is {shown(line.token_ids)}, and the first step brought more")


def _check_facts(run: RunLine) -> None:
    """What is written as it stands, whatever it says."""
    for name in ("methods", "workloads", "provenance"):
        facts = getattr(run, name)
        if is_too_deep(facts):
            raise ValueError(f"{name} is nested deeper than {MOST_LEVELS} levels")
        if any(not -MOST <= number <= MOST for number in _numbers(facts)):
            raise ValueError(f"{name} has a number that is none, or too large")


def _numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
