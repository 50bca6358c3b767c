"""Stored ratios against new ones. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from benchmarks.check.figures import FIGURES, Figure
from benchmarks.page import Json, table
from offramp.bench.tune.compare import student

LEAST_ALLOWED = 0.1
"""Nothing less is called slower, however alike the stored runs were: another process alone brings as much."""
LEAST_RUNS = 5
"""Stored, to know how much runs of the same code differ."""
FALSE_ALARMS = 0.01
"""How often a figure of a run of the same code lies beyond what is allowed; then it is measured a second time."""
CONDITIONS = ("cpu", "cores", "cpu_flags", "threads", "model", "weights")
"""What must be the same for two runs to be compared."""

Rounds = Mapping[str, list[float]]
"""A ratio a round, by the figure's name."""
Medians = Mapping[str, list[float]]
"""A stored run's median each, by the figure's name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure that both runs have. `loss` is the share by which things take longer now; below 0, shorter."""

    figure: Figure
    stored: float
    now: float
    loss: float
    allowed: float

    @property
    def slower(self) -> bool:
        return self.loss > self.allowed

    @property
    def faster(self) -> bool:
        return 1 / (1 + self.loss) - 1 > self.allowed

    @property
    def sentence(self) -> str:
        return (
            f"slower: {self.figure.name} ({self.figure.what}): {self.stored:.3f} was stored, now {self.now:.3f}; "
            f"that takes {self.loss:.0%} longer, {self.allowed:.0%} are allowed"
        )


def findings(stored: Medians, now: Rounds) -> list[Finding]:
    """Of all figures that both have, in the order of `stored`."""
    return [find(FIGURES[name], medians, now[name]) for name, medians in stored.items() if name in now]


def find(figure: Figure, stored: Sequence[float], now: Sequence[float]) -> Finding:
    """This run's median against the mean of the stored ones."""
    before, after = math.exp(fmean(map(math.log, stored))), median(now)
    return Finding(figure, before, after, _loss(figure, before, after), allowed(stored))


def allowed(stored: Sequence[float]) -> float:
    """The share by which a further run's median may be worse: the end of its one-sided prediction interval."""
    count = len(stored)
    spread = stdev(map(math.log, stored))
    return max(LEAST_ALLOWED, math.expm1(student(count - 1, FALSE_ALARMS) * spread * math.sqrt(1 + 1 / count)))


def _loss(figure: Figure, before: float, after: float) -> float:
    return (before / after if figure.more_is_better else after / before) - 1


def better(first: Rounds, second: Rounds) -> dict[str, list[float]]:
    """Of figures measured twice the run with the better median: a neighbour can only slow things down."""
    chosen = dict(first)
    for name, rounds in second.items():
        if name not in chosen or _loss(FIGURES[name], median(chosen[name]), median(rounds)) < 0:
            chosen[name] = rounds
    return chosen


def stored_lines(rounds: Rounds) -> Iterator[Json]:
    """A line a figure, as they are kept."""
    for name, ratios in rounds.items():
        figure = FIGURES[name]
        yield {
            "result": "check",
            "figure": name,
            "what": figure.what,
            "better": "more" if figure.more_is_better else "less",
            "median": round(median(ratios), 4),
            "rounds": [round(ratio, 4) for ratio in ratios],
        }


def stored_medians(lines: Sequence[Json]) -> dict[str, list[float]]:
    """By figure, a run after the other. Figures that are no more are left out, and those of fewer runs than needed."""
    return {name: medians for name, medians in _medians(lines).items() if len(medians) >= LEAST_RUNS}


def too_few(lines: Sequence[Json]) -> list[str]:
    """Figures of fewer stored runs than needed, such as new ones: `stored_medians` leaves them out."""
    return [name for name, medians in _medians(lines).items() if len(medians) < LEAST_RUNS]


def _medians(lines: Sequence[Json]) -> dict[str, list[float]]:
    told: dict[str, list[float]] = {}
    for line in lines:
        if line["figure"] in FIGURES:
            told.setdefault(line["figure"], []).append(line["median"])
    return told


def other_conditions(stored: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What keeps two runs from being compared, in words."""
    return [
        f"{name} {stored.get(name)}, not {now.get(name)}" for name in CONDITIONS if stored.get(name) != now.get(name)
    ]


def findings_table(found: Sequence[Finding]) -> str:
    """For the terminal."""
    rows = [
        (
            each.figure.name,
            f"{each.stored:.3f}",
            f"{each.now:.3f}",
            f"{each.loss:+.1%}",
            f"{each.allowed:.1%}",
            "slower" if each.slower else "faster" if each.faster else "",
        )
        for each in found
    ]
    return table(("figure", "stored", "now", "time", "allowed", ""), rows)


def rounds_table(rounds: Rounds) -> str:
    """What was measured, compared with nothing."""
    cells = [(name, f"{median(ratios):.3f}", FIGURES[name].what) for name, ratios in rounds.items()]
    return table(("figure", "now", "what"), cells)
