from __future__ import annotations

import pytest

from offramp.bench.quality import METRICS
from offramp.bench.workloads.item import Item


def item(*references: str) -> Item:
    return Item(name="x", task="t", content="?", references=references)


@pytest.mark.parametrize(
    ("metric", "references", "right", "wrong"),
    [
        ("contains", ("Paris", "Lutetia"), "In old times it was Lutetia.", "Parisians"),
        ("exact_match", ("[IN:A ]", "[IN:B ]"), " [IN:B   ]\n", "It is [IN:B ]"),
        ("final_number", ("2 * 9\n#### 18", "20"), "There are 3, so 20.00 in all", "18 or 19"),
        ("final_number", ("18",), "#### 18 and not 19", "none"),
        ("rouge_l", ("one two", "red green"), "Red, green!", "blue"),
    ],
)
def test_any_reference_will_do(metric: str, references: tuple[str, ...], right: str, wrong: str) -> None:
    assert METRICS[metric](item(*references), right) == 1.0
    assert METRICS[metric](item(*references), wrong) == 0.0


def test_the_nearest_reference_counts() -> None:
    assert METRICS["rouge_l"](item("a b c d", "a x y z"), "a b") == pytest.approx(2 / 3)
