"""Names of measures, and which figure of a summary each of them is. Their values: tests/native/test_summary.py."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.measures import MEASURES, measure_of
from offramp.testing.twin import summary_of


def test_each_measure_is_the_one_of_its_name() -> None:
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]], dtype=np.float32))
    scores = {name: measure(summary_of(logits)).tolist() for name, measure in MEASURES.items()}
    assert scores["top_probability"] == pytest.approx([0.7, 0.5], abs=1e-6)
    assert scores["margin"] == pytest.approx([0.5, 0.25], abs=1e-6)
    assert scores["entropy"] == pytest.approx([1 - 0.80182 / np.log(3), 1 - 1.5 * np.log(2) / np.log(3)], abs=1e-5)


def test_names() -> None:
    assert measure_of("margin") is MEASURES["margin"]
    with pytest.raises(InvalidRequestError, match="measure='certainty'") as caught:
        measure_of("certainty")
    assert "entropy, margin, top_probability" in caught.value.hint
