"""How well the cost model predicts what steps take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from offramp.bench.report.charts.costs import cost_fit
from offramp.bench.report.figures import counted, figure, ratio, share
from offramp.bench.report.given import Given
from offramp.bench.report.html import Html, element
from offramp.bench.report.sections.pieces import block, cell, heading, panel, panels, table
from offramp.bench.results.lines import CostLine

MOST = 64


def costs(given: Given) -> list[Html]:
    """A chart, and its numbers."""
    known = [cost for cost in given.costs if cost.measured_ms > 0 and cost.predicted_ms > 0]
    if not known:
        return []
    shown = known[:MOST]
    note = (
        "What steps of some rows behind a context take, all layers and the head. Drafts and exits are chosen by the "
        "prediction: on the dashed line it is right, above it is too high."
    )
    left = f" {counted(len(known) - MOST, 'step')} more are not shown." if len(known) > MOST else ""
    fit = panel("Measured and predicted", cost_fit(shown), note=_told(known) + left)
    return [block("The cost model", note, panels([fit, _table(shown)]))]


def _told(known: Sequence[CostLine]) -> str:
    """The middle of the errors, and the worst."""
    errors = [abs(cost.predicted_ms / cost.measured_ms - 1) for cost in known]
    worst = known[errors.index(max(errors))]
    return (
        f"Half of the predictions are within {share(statistics.median(errors))}; the farthest, at "
        f"{counted(worst.rows, 'row')}, is off by {share(max(errors))}."
    )


def _table(known: Sequence[CostLine]) -> Html:
    head = ("rows", "context", "measured, ms", "predicted, ms", "ratio")
    rows = [
        [
            heading(f"{cost.rows:,}"),
            cell(f"{cost.context:,}", cost.context),
            cell(figure(cost.measured_ms), cost.measured_ms),
            cell(figure(cost.predicted_ms), cost.predicted_ms),
            cell(ratio(cost.predicted_ms / cost.measured_ms), cost.predicted_ms / cost.measured_ms),
        ]
        for cost in known
    ]
    return element("figure", table("Steps, measured and predicted", head, rows))
