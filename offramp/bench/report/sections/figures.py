"""All cells of a workload in one table: every speed beside its promise and its quality."""

from __future__ import annotations

from collections.abc import Callable

from offramp.bench.report.figures import change, counted, figure, metric_name, ratio, share, size, span, with_span
from offramp.bench.report.given import Part
from offramp.bench.report.html import Html, cut, element
from offramp.bench.report.sections.pieces import block, cell, heading, method_mark, missing, table
from offramp.bench.results.cells import ALL, RAN_AS_FULL, Cell, Interval
from offramp.bench.results.lines import PLAIN

MOST_ROWS = 600
NOTE_LETTERS = 60
HEAD = (
    *("method", "promise", "task", "streams", "equal"),
    *("decode, tokens/s", "times plain", "end to end, tokens/s", "times plain"),
    *("first token, ms", "token, ms: median", "p90", "p99"),
    *("memory, peak", "J/token", "drafts accepted", "tokens a drafted step", "layers a token", "prompts"),
)
QUALITY_PLACE = 5
"""Where the columns of metrics go in: behind equality."""


def all_figures(part: Part) -> list[Html]:
    """One table."""
    cells = sorted(part.cells, key=lambda each: _order(part, each))
    metrics = part.metrics
    head = (*HEAD[:QUALITY_PLACE], *map(metric_name, metrics), *HEAD[QUALITY_PLACE:])
    rows = [_row(each, metrics) for each in cells[:MOST_ROWS]]
    left = len(cells) - len(rows)
    note = "Small: 95 % bootstrap intervals; below a metric, its change against plain decoding. " + (
        f"{counted(left, 'row')} more are not shown." if left > 0 else ""
    )
    shown = table(f"All figures of {part.workload}", head, rows, words=("promise", "task"), class_="figures")
    return [element("div", block("All figures", note.strip(), shown), class_="spread")]


def _order(part: Part, each: Cell) -> tuple[int, int, int]:
    """All tasks together first."""
    task = -1 if each.task == ALL else part.tasks.index(each.task)
    return task, part.streams.index(each.streams), part.methods.index(each.method)


def _row(each: Cell, metrics: list[str]) -> list[Html]:
    no_plain = "this is plain decoding" if each.method == PLAIN else "not measured on the same beside plain decoding"
    no_drafts, no_exits = "the method drafted nothing", "no token left early"
    failed = f"{each.num_failed:,} failed" if each.num_failed else ""
    equal = None if each.equal_share is None else Interval(*(each.equal_share,) * 3)
    return [
        heading(each.method, method_mark(each.method, each.exactness)),
        cell(each.exactness, below="" if each.note is None else f"{RAN_AS_FULL}: {cut(each.note, NOTE_LETTERS)}"),
        cell("all" if each.task == ALL else each.task),
        cell(str(each.streams), each.streams),
        _figure(equal, no_plain, share, spread=False),
        *(_quality(each, metric) for metric in metrics),
        _figure(each.decode_rate if each.decode_rate.value else None, "no token came behind a first one", figure),
        _figure(each.decode_ratio, no_plain, ratio),
        _figure(each.total_rate, "", figure),
        _figure(each.total_ratio, no_plain, ratio),
        _figure(each.first_ms, "", figure),
        *(_one(each.token_ms.get(name), "no gaps between tokens", figure) for name in ("median", "p90", "p99")),
        _one(each.peak_bytes, "the system did not tell", size),
        _figure(each.joules_per_token, "the machine does not tell its energy", figure),
        _one(each.acceptance_rate, no_drafts, share),
        _one(each.acceptance_length, no_drafts, figure),
        _one(each.mean_exit_layer, no_exits, figure),
        cell(f"{each.num_items:,}", each.num_items, below=failed),
    ]


def _quality(each: Cell, metric: str) -> Html:
    """A metric's value, and its change."""
    value = each.quality.get(metric)
    if value is None:
        return element("td", missing(f"no answer was judged by {metric_name(metric)}"))
    changed = each.quality_change.get(metric)
    below = _span(value, figure) if changed is None else with_span(changed, change)
    return cell(figure(value.value), value.value, below=below)


def _figure(interval: Interval | None, why: str, write: Callable[[float], str], *, spread: bool = True) -> Html:
    if interval is None:
        return element("td", missing(why))
    return cell(write(interval.value), interval.value, below=_span(interval, write) if spread else "")


def _span(interval: Interval, write: Callable[[float], str]) -> str:
    """Nothing of a point."""
    return "" if interval.is_point else span(interval, write)


def _one(value: float | None, why: str, write: Callable[[float], str]) -> Html:
    return element("td", missing(why)) if value is None else cell(write(value), value)
