"""How long a draft may be: one controller a file, by name in `LENGTHS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offramp.core import CostModel, LengthController
from offramp.draft import MAX_NODES

FIRST_NODES = 5
"""Of a sequence under the heuristic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSettings:
    """What controllers are made from."""

    costs: CostModel
    num_layers: int
    max_draft: int | None = None


def _goodput(settings: LengthSettings) -> LengthController:
    from offramp.draft.length.goodput import GoodputLength

    return GoodputLength(settings.costs, settings.num_layers)


def _fixed(settings: LengthSettings) -> LengthController:
    from offramp.draft.length.fixed import FixedLength

    return FixedLength(settings.max_draft)


def _heuristic(settings: LengthSettings) -> LengthController:
    from offramp.draft.length.heuristic import HeuristicLength

    cap = settings.max_draft or MAX_NODES
    return HeuristicLength(start=min(FIRST_NODES, cap), cap=cap)


def _confidence(settings: LengthSettings) -> LengthController:
    from offramp.draft.length.confidence import ConfidenceLength

    return ConfidenceLength()


LENGTHS: Mapping[str, Callable[[LengthSettings], LengthController]] = {
    "goodput": _goodput,
    "fixed": _fixed,
    "heuristic": _heuristic,
    "confidence": _confidence,
}
