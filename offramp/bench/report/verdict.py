"""What a workload's figures come to, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.bench.report.figures import change, measured, metric_name, ratio, share, span, with_span
from offramp.bench.report.given import Part
from offramp.bench.report.shapes import is_exact
from offramp.bench.results.cells import Cell, Interval
from offramp.bench.results.lines import PLAIN

Compared = Sequence[tuple[Cell, Interval]]
"""Methods, and their decoding speed over that of plain decoding."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence to remember, and what belongs to it."""

    lead: str
    more: Sequence[str] = ()


def verdict(part: Part) -> Verdict:
    """Of the fewest streams and all tasks: the fastest lossless method, or that none beats plain decoding."""
    cells, plain = part.dynamic(), part.cell(PLAIN)
    compared = [(cell, cell.decode_ratio) for cell in cells if cell.decode_ratio is not None]
    if not compared:
        return _alone(cells, plain)
    exact = [(cell, gain) for cell, gain in compared if is_exact(cell.exactness) and cell.equal_share in (None, 1.0)]
    if not exact:
        return Verdict("No method that keeps plain decoding's tokens was measured beside it.", _with_loss(compared))
    best, gain = _fastest(exact)
    if _is_gain(best, gain):
        lead = f"{best.method} decodes {ratio(gain.value)} times as fast as plain decoding"
        lead += f" ({span(gain, ratio)}), {_sameness(best)}."
        return Verdict(lead, [*_end_to_end(best), *_with_loss(compared)])
    nearest = f"The fastest, {best.method}, ran at {with_span(gain, ratio)} times its speed, {_sameness(best)}."
    lead = "No lossless method beats plain decoding on this workload by more than the noise."
    if gain.low > 1:
        lead = f"Too little was measured to tell a gain: {measured(best)}."
    return Verdict(lead, [nearest, *_with_loss(compared)])


def _alone(cells: Sequence[Cell], plain: Cell | None) -> Verdict:
    """Where nothing was compared."""
    if cells:
        return Verdict("Nothing can be said about gains: no method was measured beside plain decoding.")
    if plain is None:
        return Verdict("Nothing of this workload was measured as a whole.")
    return Verdict(f"Only plain decoding was measured: {with_span(plain.decode_rate)} tokens/s.")


def _named(cell: Cell) -> str:
    """A method and its promise, where its name does not say that."""
    return cell.method if cell.method == cell.exactness else f"{cell.method} ({cell.exactness})"


def _fastest(compared: Compared) -> tuple[Cell, Interval]:
    return max(compared, key=lambda pair: pair[1].value)


def _is_gain(cell: Cell, gain: Interval) -> bool:
    """More than the noise, as far as enough was measured to know of that."""
    return gain.low > 1 and not cell.is_sparse


def _sameness(cell: Cell) -> str:
    """What is known of a lossless method's tokens."""
    if cell.equal_share is None:
        return "and promises its tokens; whether they were equal was not looked at"
    return "with exactly its tokens"


def _end_to_end(cell: Cell) -> list[str]:
    if cell.total_ratio is None:
        return []
    return [f"End to end, prompts included, it is {with_span(cell.total_ratio, ratio)} times as fast."]


def _with_loss(compared: Compared) -> list[str]:
    """A sentence on the fastest method that may lose something, if it beats plain decoding."""
    losing = [(cell, gain) for cell, gain in compared if not is_exact(cell.exactness) and _is_gain(cell, gain)]
    if not losing:
        return []
    cell, gain = _fastest(losing)
    told = [f"{metric_name(metric)} {with_span(each, change)}" for metric, each in cell.quality_change.items()]
    if cell.equal_share is not None:
        told.append(f"{share(cell.equal_share)} of its answers equal plain decoding's")
    lost = "; ".join(told) or "what that loses was not measured"
    return [f"With another promise: {_named(cell)}, {with_span(gain, ratio)} times as fast; {lost}."]
