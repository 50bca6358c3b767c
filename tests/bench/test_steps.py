"""What is timed is what was asked for: ranges, rows, and rows that a real decoding step would have."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.bench.provenance import provenance
from offramp.bench.steps import layer_ranges, measure_steps
from offramp.core import Rows
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable, Curve
from offramp.model.hidden import ArrayHidden
from offramp.native.processor import processor_name
from offramp.testing.scripted import ScriptedModel, mixing


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(30, [(0, 30), (0, 10), (10, 20), (20, 30)]), (1, [(0, 1)]), (2, [(0, 2), (0, 1), (1, 2)])],
)
def test_layer_ranges(layers: int, expected: list[tuple[int, int]]) -> None:
    assert layer_ranges(layers) == expected


LAYERS, NOTHING, HEAD = (Curve(((1, seconds),)) for seconds in (3.0, 0.0, 2.0))
COSTS = MeasuredCosts(CostTable(num_layers=3, context=32, call=0.0, layers=LAYERS, per_token=NOTHING, head=HEAD))


class Recorder(ScriptedModel):
    """Notes the calls; the scripted model below it checks every page, slot and depth."""

    def __init__(self) -> None:
        super().__init__(mixing(), num_pages=8, num_layers=3)
        self.calls: list[tuple[int, int, int, int]] = []

    def run_layers(self, h: ArrayHidden, rows: Rows, start: int, stop: int) -> ArrayHidden:  # type: ignore[override]
        self.calls.append((len(rows), int(rows.positions.max()), start, stop))
        return super().run_layers(h, rows, start, stop)


def test_every_cell_runs_its_rows_and_layers_behind_the_context() -> None:
    model = Recorder()
    cells = list(measure_steps(model, COSTS, row_counts=[1, 4], context=60, seconds_per_cell=0.0))
    assert [(cell.part, cell.rows) for cell in cells] == [
        (part, rows) for rows in (1, 4) for part in ("0:3", "0:1", "1:2", "2:3", "head")
    ]
    assert {cell.repeats for cell in cells} == {3}
    assert [cell.predicted_ms for cell in cells[:5]] == [3000.0, 1000.0, 1000.0, 1000.0, 2000.0]
    decoding = [call for call in model.calls if call[0] in (1, 4)]
    assert {call[1] for call in decoding} == {64}
    assert {(call[2], call[3]) for call in decoding} >= {(0, 3), (0, 1), (1, 2), (2, 3)}


def test_too_few_pages_are_our_bug() -> None:
    with pytest.raises(AssertionError, match="too few pages"):
        list(measure_steps(Recorder(), COSTS, row_counts=[8], context=250, seconds_per_cell=0.0))


def test_provenance_names_machine_and_versions() -> None:
    facts = provenance()
    assert facts["numpy"] == np.__version__
    assert facts["cpu"] == processor_name()
    assert processor_name()
