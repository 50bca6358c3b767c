"""A run's lines by what they are about: one method's turns on one workload, at so many streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from offramp.bench.results.intervals import Values
from offramp.bench.results.lines import FailureLine, ItemLine, Line, ScoreLine, TurnLine

GroupKey = tuple[str, str, int]
"""Workload, method, streams."""

_Read = Callable[[ItemLine], tuple[float, float]]


@dataclass(slots=True)
class Group:
    """The turns of one method, workload and number of streams, by rounds."""

    streams: int
    turns: dict[int, TurnLine] = field(default_factory=dict)
    answers: dict[int, dict[str, ItemLine]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)  # items, in any round

    @property
    def rounds(self) -> list[int]:
        return sorted(self.turns)

    @property
    def answered(self) -> list[str]:
        """Items that were answered in every round."""
        rounds = [self.answers.get(number, {}) for number in self.rounds]
        return [name for name in rounds[0] if all(name in each for each in rounds)] if rounds else []

    def task_of(self, name: str) -> str | None:
        """The task of an item that was answered once; None of another."""
        return next((each[name].task for each in self.answers.values() if name in each), None)

    def decoding(self, rounds: Sequence[int], names: Sequence[str]) -> Values:
        """Seconds and tokens behind the first ones. [rounds, items, 2]"""
        return self._of_items(rounds, names, lambda line: (_last(line) - line.steps[0][0], _later(line)))

    def whole(self, rounds: Sequence[int], names: Sequence[str]) -> Values:
        """Seconds and tokens from the request to the last. [rounds, items, 2]"""
        return self._of_items(rounds, names, lambda line: (_last(line), len(line.token_ids)))

    def turns_decoding(self, rounds: Sequence[int]) -> Values:
        """Seconds and tokens of whole turns in which nothing but decoding ran. [rounds, 1, 2]"""
        taken = [self.turns[number] for number in rounds]
        return np.array([[(turn.decode_seconds, turn.decoded_tokens)] for turn in taken], np.float64)

    def turns_whole(self, rounds: Sequence[int]) -> Values:
        """Seconds and tokens of whole turns. [rounds, 1, 2]"""
        taken = [self.turns[number] for number in rounds]
        return np.array([[(turn.seconds, turn.output_tokens)] for turn in taken], np.float64)

    def lines(self, rounds: Iterable[int], names: Iterable[str]) -> list[ItemLine]:
        """All of these items' answers."""
        wanted = list(names)
        return [self.answers[number][name] for number in rounds for name in wanted]

    def _of_items(self, rounds: Sequence[int], names: Sequence[str], read: _Read) -> Values:
        """Of several requests at once, each had that part of the machine: their seconds count as so much less.

        No more ran at once than were answered.
        """
        told = [[read(self.answers[number][name]) for name in names] for number in rounds]
        values = np.array(told, np.float64).reshape(len(rounds), len(names), 2)
        at_once = [min(self.streams, len(self.answers.get(number, {})) or 1) for number in rounds]
        values[..., 0] /= 1000 * np.array(at_once, np.float64)[:, None]
        return values


class Gathered:
    """All groups and scores of a run, and which methods did not get to its end."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.dropped: set[str] = set()
        self._scores: dict[tuple[str, str], dict[str, dict[str, float]]] = {}  # workload, method -> metric -> item
        for line in lines:
            self._take(line)

    def group(self, workload: str, method: str, streams: int) -> Group:
        """Empty where nothing ran."""
        return self.groups.get((workload, method, streams), Group(streams))

    def scores(self, workload: str, method: str) -> dict[str, dict[str, float]]:
        """By metric and item."""
        return self._scores.get((workload, method), {})

    def _take(self, line: Line) -> None:
        if isinstance(line, ScoreLine):
            by_metric = self._scores.setdefault((line.workload, line.method), {})
            by_metric.setdefault(line.metric, {})[line.item] = line.value
        elif isinstance(line, TurnLine | ItemLine | FailureLine):
            key = line.workload, line.method, line.streams
            group = self.groups.setdefault(key, Group(line.streams))
            if isinstance(line, TurnLine):
                group.turns[line.round] = line
            elif isinstance(line, ItemLine):
                group.answers.setdefault(line.round, {})[line.item] = line
            elif line.item is None:
                self.dropped.add(line.method)
            else:
                group.failed.add(line.item)


def _last(line: ItemLine) -> float:
    """Milliseconds."""
    return line.steps[-1][0]


def _later(line: ItemLine) -> int:
    return len(line.token_ids) - line.steps[0][1]
