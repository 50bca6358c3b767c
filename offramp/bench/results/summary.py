"""The figures that a run's lines add up to.

Each counts the items that were answered in every round. A method is compared with plain decoding on items that both
answered, by rounds that both did. One that failed on the way has figures of the rounds that it did, and where plain
decoding did others, it is compared with nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offramp.bench.results.cells import ALL, Cell, Interval
from offramp.bench.results.check import GEOMETRIC
from offramp.bench.results.gathered import Gathered, Group
from offramp.bench.results.intervals import Values, mean, mean_change, median, rate, rate_ratio
from offramp.bench.results.lines import PLAIN, ItemLine, Line, RunLine

NOTHING = Interval(0.0, 0.0, 0.0)
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}


def cells(lines: Sequence[Line]) -> list[Cell]:
    """For each workload, number of streams, task (and all) and method that has a whole round."""
    run = next(line for line in lines if isinstance(line, RunLine))
    gathered = Gathered(lines)
    made: list[Cell] = []
    for workload in run.workloads:
        for streams in run.streams:
            groups = {method: gathered.group(workload, method, streams) for method in run.methods}
            for task in (ALL, *_tasks(groups)):
                for method in run.methods:
                    part = _Part(gathered, run, workload, method, streams, task)
                    if part.names:
                        made.append(part.cell())
    return made


@dataclass(frozen=True, slots=True)
class _Part:
    """What a cell is about."""

    gathered: Gathered
    run: RunLine
    workload: str
    method: str
    streams: int
    task: str

    @property
    def group(self) -> Group:
        return self.gathered.group(self.workload, self.method, self.streams)

    @property
    def plain(self) -> Group:
        return self.gathered.group(self.workload, PLAIN, self.streams)

    @property
    def names(self) -> list[str]:
        """Items of the task that were answered in every round."""
        return self._of_task(self.group.answered)

    def cell(self) -> Cell:
        group, rounds, names = self.group, self.group.rounds, self.names
        lines, once = group.lines(rounds, names), group.lines(rounds[:1], names)
        tasks = self._tasks_of(names)
        decoding, whole = self._runs(group, rounds, names)
        firsts = [[1000 * line.first_seconds for line in group.lines([number], names)] for number in rounds]
        decode_ratio, total_ratio = self._ratios()
        acceptance_rate, acceptance_length, accepted_per_pos = _acceptance(lines)
        quality, plain_quality, change = self._quality(names)
        return Cell(
            workload=self.workload,
            task=self.task,
            method=self.method,
            exactness=self.run.exactness.get(self.method, ""),
            streams=self.streams,
            num_items=len(names),
            num_failed=len(self._of_task(group.failed)),
            rounds=len(rounds),
            output_tokens=sum(len(line.token_ids) for line in once),
            decode_rate=rate(decoding, self._units(decoding, tasks)) or NOTHING,
            total_rate=rate(whole, self._units(whole, tasks)) or NOTHING,
            decode_ratio=decode_ratio,
            total_ratio=total_ratio,
            first_ms=median(np.array(firsts), tasks),
            token_ms=_token_ms(lines),
            peak_bytes=max((turn.peak_bytes or 0 for turn in group.turns.values()), default=0) or None,
            joules_per_token=self._joules(),
            equal_share=self._equal_share(),
            acceptance_rate=acceptance_rate,
            acceptance_length=acceptance_length,
            accepted_per_pos=accepted_per_pos,
            mean_exit_layer=_mean([layer for line in once for layer in line.exit_layers]),
            exit_counts=dict(sorted(Counter(layer for line in once for layer in line.exit_layers).items())),
            quality=quality,
            plain_quality=plain_quality,
            quality_change=change,
            note="; ".join(dict.fromkeys(turn.note for turn in group.turns.values() if turn.note)) or None,
        )

    def _of_task(self, names: Sequence[str] | set[str]) -> list[str]:
        """Of all items, those of the task. Of an item that nobody answered the task is not known."""
        if self.task == ALL:
            return list(names)
        return [name for name in names if (self.group.task_of(name) or self.plain.task_of(name)) == self.task]

    def _tasks_of(self, names: Sequence[str]) -> list[str]:
        return [self.group.task_of(name) or "" for name in names]

    @property
    def _by_turns(self) -> bool:
        """Rates are those of whole turns, as several requests share the time."""
        return self.task == ALL and self.streams > 1

    def _runs(self, group: Group, rounds: Sequence[int], names: Sequence[str]) -> tuple[Values, Values]:
        """What decoding took, and all."""
        if self._by_turns:
            return group.turns_decoding(rounds), group.turns_whole(rounds)
        return group.decoding(rounds, names), group.whole(rounds, names)

    def _units(self, runs: Values, tasks: Sequence[str]) -> Sequence[str]:
        """The tasks of what is drawn: items, or whole turns."""
        return [ALL] * runs.shape[1] if self._by_turns else tasks

    def _ratios(self) -> tuple[Interval | None, Interval | None]:
        """To plain decoding: while decoding, and from end to end."""
        group, plain = self.group, self.plain
        rounds = [number for number in group.rounds if number in plain.turns]
        broken = self.method in self.gathered.dropped and rounds != plain.rounds
        if self.method == PLAIN or broken or not rounds:
            return None, None
        ours, both = self.names, set(self._of_task(plain.answered))
        names = [name for name in ours if name in both]
        if not names or (self._by_turns and not len(ours) == len(names) == len(both)):
            return None, None  # whole turns of other items
        tasks = self._tasks_of(names)
        pairs = zip(self._runs(plain, rounds, names), self._runs(group, rounds, names), strict=True)
        decode, total = (rate_ratio(old, new, self._units(new, tasks)) for old, new in pairs)
        return decode, total

    def _joules(self) -> Interval | None:
        """Of whole turns, in which all tasks ran."""
        turns = [self.group.turns[number] for number in self.group.rounds]
        if self.task != ALL or any(turn.joules is None for turn in turns):
            return None
        return rate(np.array([[(turn.output_tokens, turn.joules)] for turn in turns], np.float64), [ALL])

    def _equal_share(self) -> float | None:
        """Of items that plain decoding answered: the first of its rounds counts, also for the later ones."""
        plain = self.plain
        both = set(plain.answered)
        names = [name for name in self.names if name in both]
        if not names:
            return None
        expected = plain.answers[plain.rounds[0]]
        told = [self.group.answers[number] for number in self.group.rounds]
        equal = [all(each[name].token_ids == expected[name].token_ids for each in told) for name in names]
        return sum(equal) / len(equal)

    def _quality(self, names: Sequence[str]) -> tuple[dict[str, Interval], dict[str, Interval], dict[str, Interval]]:
        """By metric: the method's, plain decoding's on the same items, and what changed."""
        ours, theirs = (self.gathered.scores(self.workload, method) for method in (self.method, PLAIN))
        quality: dict[str, Interval] = {}
        plain: dict[str, Interval] = {}
        change: dict[str, Interval] = {}
        for metric, values in ours.items():
            before = theirs.get(metric, {})
            scored = [name for name in names if name in values]
            scored = [name for name in scored if name in before] or scored
            if not scored:
                continue
            tasks, of = self._tasks_of(scored), np.log if metric in GEOMETRIC else np.array
            new = of([values[name] for name in scored])
            quality[metric] = _meant(mean(new, tasks), metric)
            if scored[0] in before:
                old = of([before[name] for name in scored])
                plain[metric] = _meant(mean(old, tasks), metric)
                if self.method != PLAIN:
                    change[metric] = _changed(mean_change(old, new, tasks), plain[metric], metric)
        return quality, plain, change


def _meant(interval: Interval, metric: str) -> Interval:
    """In the metric's own unit."""
    if metric not in GEOMETRIC:
        return interval
    return Interval(*(math.exp(each) for each in (interval.value, interval.low, interval.high)))


def _changed(interval: Interval, plain: Interval, metric: str) -> Interval:
    """The same, of a change: of logarithms it is a factor of plain decoding's."""
    if metric not in GEOMETRIC:
        return interval
    return Interval(*(plain.value * math.expm1(each) for each in (interval.value, interval.low, interval.high)))


def _tasks(groups: Mapping[str, Group]) -> list[str]:
    """Of all that was answered, in the order of plain decoding's answers. A single one is the same as all."""
    answers = [line for group in groups.values() for each in group.answers.values() for line in each.values()]
    tasks = list(dict.fromkeys(line.task for line in answers))
    return tasks if len(tasks) > 1 else []


def _token_ms(lines: Sequence[ItemLine]) -> dict[str, float]:
    """Of all tokens behind the first ones: the tokens of a step share the time since the step before."""
    gaps: list[float] = []
    for line in lines:
        for (before, _), (now, count) in pairwise(line.steps):
            gaps += [(now - before) / count] * count
    if not gaps:
        return {}
    values = np.quantile(gaps, list(QUANTILES.values()))
    return {name: float(value) for name, value in zip(QUANTILES, values, strict=True)}


def _acceptance(lines: Sequence[ItemLine]) -> tuple[float | None, float | None, tuple[float, ...]]:
    """Accepted of drafted tokens, tokens of a drafted step, accepted by position of the drafts that reached it."""
    drafted = sum(sum(line.drafted) for line in lines)
    accepted, reached = _by_position([line.accepted for line in lines]), _by_position([line.reached for line in lines])
    num_drafts = sum(line.num_drafts for line in lines)
    return (
        sum(accepted) / drafted if drafted else None,
        sum(line.num_emitted for line in lines) / num_drafts if num_drafts else None,
        tuple(got / tried for got, tried in zip(accepted, reached, strict=False) if tried),
    )


def _by_position(counts: Sequence[Sequence[int]]) -> list[int]:
    depth = max(map(len, counts), default=0)
    return [sum(each[position] for each in counts if position < len(each)) for position in range(depth)]


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None
