"""Speed against quality, ratios by task, ratios by streams."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.bench.report.charts.ratios import Row, ratio_panel, ratio_scale
from offramp.bench.report.charts.streams import stream_panel, stream_scale
from offramp.bench.report.charts.tradeoff import Point, Quality, tradeoff
from offramp.bench.report.figures import LESS_IS_BETTER, change, counted, metric_name, share
from offramp.bench.report.given import Part
from offramp.bench.report.html import Html
from offramp.bench.report.sections.pieces import block, method_mark, panel, panels
from offramp.bench.report.shapes import legend, shape_for
from offramp.bench.results.cells import ALL, Cell, Interval
from offramp.bench.results.lines import PLAIN

MOST_METRICS = 4


def speed_and_quality(part: Part) -> list[Html]:
    """A chart a metric; of equality with plain decoding where no metric judged the answers."""
    cells = [cell for cell in part.dynamic() if cell.decode_ratio is not None]
    metrics = [name for name in part.metrics if any(name in cell.quality_change for cell in cells)][:MOST_METRICS]
    charts = [_by_metric(cells, name, part.cell(PLAIN)) for name in metrics]
    equal = [(cell, cell.equal_share) for cell in cells if cell.equal_share is not None]
    if not charts and equal:
        charts = [_by_equality(equal, part.cell(PLAIN))]
    if not charts:
        return []
    shapes = ["ring", *(shape_for(cell.method, cell.exactness) for cell in cells)]
    note = (
        f"To the right is faster, upwards is better; lines are 95 % intervals. All tasks, "
        f"{counted(part.streams[0], 'stream')}. The dashed lines cross at plain decoding."
    )
    return [block("Speed against quality", note, legend(shapes), *charts)]


def _by_metric(cells: Sequence[Cell], metric: str, plain: Cell | None) -> Html:
    points = [
        Point(name=cell.method, exactness=cell.exactness, speed=cell.decode_ratio, quality=cell.quality_change[metric])
        for cell in cells
        if cell.decode_ratio is not None and metric in cell.quality_change
    ]
    name = metric_name(metric)
    points = [*_plain_point(plain, 0.0), *points]
    less = metric in LESS_IS_BETTER
    quality = Quality(name=f"change of {name}", plain=0.0, write=change, less_is_better=less)
    note = f"change against plain decoding, paired by prompt{'; less is better' if less else ''}"
    return panel(name, tradeoff(points, quality, f"Speed against {name}"), note=note)


def _by_equality(cells: Sequence[tuple[Cell, float]], plain: Cell | None) -> Html:
    points = [
        Point(name=cell.method, exactness=cell.exactness, speed=cell.decode_ratio, quality=Interval(same, same, same))
        for cell, same in cells
        if cell.decode_ratio is not None
    ]
    points = [*_plain_point(plain, 1.0), *points]
    quality = Quality(name="answers equal to plain decoding's", plain=1.0, write=share)
    chart = tradeoff(points, quality, "Speed against equality")
    return panel("equality", chart, note="no metric judged these answers")


def _plain_point(plain: Cell | None, quality: float) -> list[Point]:
    if plain is None:
        return []
    return [Point(name=PLAIN, exactness="full", speed=Interval(1, 1, 1), quality=Interval(*(quality,) * 3))]


def by_task(part: Part) -> list[Html]:
    """A panel a task, all on one scale."""
    groups = {task: part.dynamic(task=task) for task in (ALL, *part.tasks)}
    if len(part.tasks) == 1:  # the same as all together
        del groups[part.tasks[0]]
    rows = {task: [_row(cell) for cell in cells] for task, cells in groups.items() if cells}
    if not any(row.ratio for task in rows.values() for row in task):
        return []
    scale = ratio_scale([row for task in rows.values() for row in task])
    shown = []
    for task, each in rows.items():
        title = "All tasks together" if task == ALL else task
        prompts = counted(max(cell.num_items for cell in groups[task]), "prompt")
        shown.append(panel(title, ratio_panel(each, scale, f"Decoding speed over plain: {title}"), note=prompts))
    shapes = [shape_for(cell.method, cell.exactness) for cells in groups.values() for cell in cells]
    note = (
        f"Decoding speed over that of plain decoding, {counted(part.streams[0], 'stream')}: bars start at 1, to the "
        "right is faster. Lines are 95 % intervals; where one crosses 1, nothing is shown to be gained."
    )
    return [block("By task", note, legend(shapes), panels(shown))]


def _row(cell: Cell) -> Row:
    why = "no ratio: plain decoding of the same was not measured"
    return Row(name=cell.method, exactness=cell.exactness, ratio=cell.decode_ratio, why=why)


def by_streams(part: Part) -> list[Html]:
    """A panel a method; only where there are several numbers of streams."""
    rows: dict[str, list[Cell]] = {}
    for method in part.methods:
        cells = [part.cell(method, streams=streams) for streams in part.streams]
        known = [cell for cell in cells if cell is not None and cell.decode_ratio is not None]
        if method != PLAIN and len(known) > 1:
            rows[method] = known
    if not rows:
        return []
    scale = stream_scale([cell.decode_ratio for cells in rows.values() for cell in cells if cell.decode_ratio])
    shown = [
        panel(
            method,
            stream_panel(cells, scale, f"{method}: decoding speed over plain, by streams"),
            note=cells[0].exactness,
            mark=method_mark(method, cells[0].exactness),
        )
        for method, cells in rows.items()
    ]
    note = (
        "Decoding speed over that of plain decoding with as many streams; below, the number of streams and all their "
        "tokens a second. The more streams share a step, the less room is left for drafts."
    )
    return [block("Several streams", note, panels(shown))]
