"""Controllers reach their targets in simulation, and what can't be reached ends at a bound."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.errors import InvalidRequestError
from offramp.exits.controllers import HoldDepth, HoldQueue, HoldRate
from offramp.exits.thresholds import NEVER, Threshold

LAYERS, NUM_LAYERS = (6, 12, 18), 30
SHARPNESS = {6: 2.0, 12: 4.0, 18: 8.0}  # deeper heads are surer


def run_tokens(threshold: Threshold, count: int, seed: int, rows: int = 4) -> np.ndarray:
    """Depths of tokens, `rows` of them a step, whose scores are drawn anew at each exit point."""
    rng = np.random.default_rng(seed)
    depths = np.full((count // rows, rows), NUM_LAYERS)
    for step in depths:
        asked = np.arange(rows)
        for layer in LAYERS:
            scores = rng.beta(SHARPNESS[layer], 1.0, len(asked)).astype(np.float32)
            left = scores >= threshold.value(layer, 1)
            threshold.decided(layer, scores, left)
            step[asked[left]] = layer
            asked = asked[~left]
            if len(asked) == 0:
                break
    return depths.ravel()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_of_exits_is_held(rate: float) -> None:
    depths = run_tokens(HoldRate(rate, LAYERS), 6000, seed=0)
    assert (depths[3000:] < NUM_LAYERS).mean() == pytest.approx(rate, abs=0.03)


@pytest.mark.parametrize("depth", [9.0, 16.0, 25.0])
def test_the_mean_depth_is_held(depth: float) -> None:
    depths = run_tokens(HoldDepth(depth, LAYERS, NUM_LAYERS), 6000, seed=1)
    assert depths[3000:].mean() == pytest.approx(depth, abs=0.5)


def test_extreme_targets_end_at_the_bounds() -> None:
    assert (run_tokens(HoldRate(0.0, LAYERS), 8000, seed=2)[4000:] < NUM_LAYERS).mean() < 0.01
    assert (run_tokens(HoldRate(1.0, LAYERS), 8000, seed=2)[4000:] < NUM_LAYERS).mean() > 0.99
    assert run_tokens(HoldDepth(30.0, LAYERS, NUM_LAYERS), 8000, seed=2)[4000:].mean() > 29.9
    assert run_tokens(HoldDepth(6.0, LAYERS, NUM_LAYERS), 8000, seed=2)[4000:].mean() < 6.2


def run_queue(controller: HoldQueue, waiting: list[int], arrivals: float, steps: int, seed: int) -> list[int]:
    """A server that takes up one or two requests a step, more often two the more tokens leave early."""
    rng = np.random.default_rng(seed)
    lengths = []
    for _ in range(steps):
        scores = rng.beta(4.0, 1.0, 8).astype(np.float32)
        left = scores >= controller.value(6, 1)
        controller.decided(6, scores, left)
        controller.decided(12, scores[~left], np.zeros((~left).sum(), dtype=bool))
        served = 1 + int(rng.random() < left.mean())
        waiting[0] = max(0, waiting[0] + rng.poisson(arrivals) - served)
        lengths.append(waiting[0])
    return lengths


def test_the_queue_is_held_whatever_the_load() -> None:
    for arrivals in (1.3, 1.7):
        waiting = [0]
        controller = HoldQueue(8, (6, 12), lambda waiting=waiting: waiting[0])
        lengths = run_queue(controller, waiting, arrivals, 8000, seed=3)
        assert np.mean(lengths[2000:]) == pytest.approx(8, abs=1.5), arrivals
    waiting = [0]
    free = HoldQueue(8, (6, 12), lambda: 8)  # the threshold never hears of the queue
    assert np.mean(run_queue(free, waiting, 1.7, 8000, seed=3)[2000:]) > 100


def test_an_idle_server_runs_all_layers_and_a_flooded_one_leaves_at_once() -> None:
    idle, flooded = HoldQueue(4, (6,), lambda: 0), HoldQueue(4, (6,), lambda: 500)
    for controller in (idle, flooded):
        for _ in range(1000):
            controller.decided(6, np.zeros(1, dtype=np.float32), np.zeros(1, dtype=bool))
    assert idle.value(6, 0) == NEVER
    assert flooded.value(6, 0) == 0.0


def test_they_say_that_they_adapt() -> None:
    for controller in (HoldRate(0.5, LAYERS), HoldDepth(12, LAYERS, 30), HoldQueue(4, LAYERS, lambda: 0)):
        assert controller.adaptive
        assert not controller.wants_labels
        before = controller.value(6, 0)
        controller.observe(6, np.ones(1, dtype=np.float32), np.ones(1, dtype=bool))
        assert controller.value(6, 0) == before


def test_impossible_targets_are_refused() -> None:
    for make in (
        lambda: HoldRate(1.1, LAYERS),
        lambda: HoldDepth(5.0, LAYERS, 30),
        lambda: HoldDepth(31.0, LAYERS, 30),
        lambda: HoldDepth(10.0, LAYERS, 18),
        lambda: HoldQueue(float("nan"), LAYERS, lambda: 0),
        lambda: HoldQueue(3, LAYERS, lambda: 0, proportional=0.0, integral=0.0),
    ):
        with pytest.raises(InvalidRequestError):
            make()
