"""How good answers are: metrics by name. Each gives a number in [0, 1] for an item and the text of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offramp.bench.quality.code import pass_at_1
from offramp.bench.quality.texts import contains, exact_match, final_number, rouge_l
from offramp.bench.workloads.item import Item

__all__ = ["METRICS"]

METRICS: Mapping[str, Callable[[Item, str], float]] = {
    "rouge_l": rouge_l,
    "contains": contains,
    "exact_match": exact_match,
    "final_number": final_number,
    "pass_at_1": pass_at_1,
}
