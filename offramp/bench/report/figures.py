"""Numbers as people read them. What is not known, or no number, is None here and an em dash on the page."""

from __future__ import annotations

import math
from collections.abc import Callable

from offramp.bench.results.cells import Cell, Interval
from offramp.bench.results.lines import PERPLEXITY

MISSING = "—"
MINUS = "\N{MINUS SIGN}"
DIGITS = 3
KIB = 1024
METRICS = {"rouge_l": "ROUGE-L", "pass_at_1": "pass@1"}
LESS_IS_BETTER = frozenset({PERPLEXITY})


def figure(value: float) -> str:
    """Three digits, or all of a whole number's, in groups: 0.0123, 1.23, 188, 12,345."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{DIGITS - 1}e}")  # first, as 9.996 has its three digits as 10.0
    places = max(0, min(6, DIGITS - 1 - math.floor(math.log10(abs(rounded)))))
    return f"{value:,.{places}f}"


def ratio(value: float) -> str:
    """How many times as much: 1.42."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def share(value: float) -> str:
    """In percent: 100 % only where it is all, 0 % only where it is none."""
    if not math.isfinite(value):
        return MISSING
    percent = 100 * value
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f}".removesuffix(".0") + " %"


def change(value: float) -> str:
    """A difference, with its sign: +0.012, -0.3 with a true minus, 0."""
    shown = f"{abs(value):.3f}" if 0.0005 <= abs(value) < 1 else figure(abs(value))
    return shown if value == 0 or shown == MISSING else f"{'+' if value > 0 else MINUS}{shown}"


def metric_name(metric: str) -> str:
    """A measure of quality as the field writes it."""
    return METRICS.get(metric, metric.replace("_", " "))


def span(interval: Interval, write: Callable[[float], str] = figure) -> str:
    """Low and high of an interval: 1.31 to 1.55."""
    return f"{write(interval.low)} to {write(interval.high)}"


def with_span(interval: Interval, write: Callable[[float], str] = figure) -> str:
    """A figure and its interval: 1.42 (1.31 to 1.55). A point is the figure alone."""
    return write(interval.value) if interval.is_point else f"{write(interval.value)} ({span(interval, write)})"


def size(num_bytes: float) -> str:
    """Bytes as MiB or GiB."""
    mib = num_bytes / KIB**2
    return f"{figure(mib)} MiB" if mib < KIB else f"{figure(mib / KIB)} GiB"


def measured(cell: Cell) -> str:
    """What a cell's speeds rest on: 3 prompts in 1 round."""
    return f"{counted(cell.num_items, 'prompt')} in {counted(cell.rounds, 'round')}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 item, 1,200 items."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
