"""Threshold policies at work in an engine: tokens are a request's own, and what never fires changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from offramp.exits.beta import BetaMixture
from offramp.exits.controllers import HoldDepth, HoldRate
from offramp.exits.measures import MEASURES, measure_of
from offramp.exits.similarity import Similarity
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.exits.thresholds import NEVER, Decaying, Fixed, PerExit, Threshold
from offramp.model.executor import FINAL
from offramp.testing.running import Told, run
from tests.exits.exiting import (
    EARLY,
    NUM_LAYERS,
    alone,
    at_full_depth,
    engine_with,
    native,
    requests,
    says_the_same,
)

LAYERS = (2, 4)
HEADS = dict.fromkeys(LAYERS, FINAL)


def policy(threshold: Threshold, measure: str = "margin", **more: object) -> ThresholdPolicy:
    return ThresholdPolicy(layers=LAYERS, heads=HEADS, measure=measure_of(measure), threshold=threshold, **more)  # type: ignore[arg-type]


def similar() -> ThresholdPolicy:
    predictors = dict.fromkeys(LAYERS, Similarity())
    return policy(Fixed(0.0), predictors=predictors, predictor_threshold=Fixed(0.85))


def depths(told: dict[object, Told]) -> list[int]:
    return [layer for each in told.values() for layer in each.exit_layers]


def middling(measure: str) -> Threshold:
    """A threshold that some tokens of the toy reach."""
    return {"margin": Fixed(0.002), "top_probability": Fixed(0.01), "entropy": Fixed(0.01)}[measure]


CASES: dict[str, Callable[[], ThresholdPolicy]] = {
    **{name: lambda name=name: policy(middling(name), name) for name in MEASURES},  # type: ignore[misc]
    "falling": lambda: policy(Decaying(PerExit({2: 0.002, 4: 0.001}), 16)),
    "similarity": similar,
}


@pytest.mark.parametrize("batching", ["compact", "barrier"])
@pytest.mark.parametrize("case", CASES)
def test_tokens_are_the_same_alone_and_in_a_batch(case: str, batching: str) -> None:
    single = alone(CASES[case](), requests())
    together = run(engine_with(CASES[case](), batching=batching), requests())  # type: ignore[arg-type]
    says_the_same(together, single)
    found = depths(single)  # type: ignore[arg-type]
    assert set(found) & set(LAYERS), "something leaves"
    assert NUM_LAYERS in found, "something stays"


def test_the_native_executor_leaves_where_the_twin_does() -> None:
    says_the_same(run(engine_with(similar(), native()), requests()), run(engine_with(similar()), requests()))


def test_a_threshold_out_of_reach_is_full_depth() -> None:
    full = run(engine_with(None), at_full_depth(requests()))
    never = run(engine_with(policy(Fixed(NEVER))), requests(exits=EARLY))
    for key, told in never.items():
        assert set(told.exit_layers) == {NUM_LAYERS}
        assert (told.token_ids, told.logprobs) == (full[key].token_ids, full[key].logprobs)


def late(threshold: Threshold) -> np.ndarray:
    """Depths of the tokens of some sequences, without the first ones of each."""
    told = run(engine_with(policy(threshold), native()), requests(3, max_tokens=56))
    return np.array([layer for each in told.values() for layer in each.exit_layers[24:]])


@pytest.mark.parametrize("rate", [0.3, 0.7])
def test_a_controller_holds_its_rate_in_an_engine(rate: float) -> None:
    found = late(HoldRate(rate, LAYERS, gain=0.5))
    assert (found < NUM_LAYERS).mean() == pytest.approx(rate, abs=0.12)


def test_a_controller_holds_its_depth_in_an_engine() -> None:
    assert late(HoldDepth(3.5, LAYERS, NUM_LAYERS, gain=0.5)).mean() == pytest.approx(3.5, abs=0.3)


def test_labels_reach_the_mixture() -> None:
    class Eager(BetaMixture):
        """Lets all leave, so that there are labels, and counts them."""

        num_labels = 0

        def value(self, layer: int, output: int) -> float:
            return 0.0 if layer == 4 and output % 2 else NEVER

        def observe(self, layer: int, scores: np.ndarray, agreed: np.ndarray) -> None:
            self.num_labels += len(scores)
            super().observe(layer, scores, agreed)

    threshold = Eager()
    learning = policy(threshold)
    told = run(engine_with(learning, max_pending=1), requests())
    num_left = sum(layer == 4 for layer in depths(told))  # type: ignore[arg-type]
    assert num_left - len(told) <= threshold.num_labels <= num_left
    assert threshold.num_labels > 10
    assert learning._scores == {}, "ended sequences leave nothing"
