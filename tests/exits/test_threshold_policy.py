"""The policy that all settings share: what leaves, what is asked, what is learned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from offramp.exits.measures import Scores, margin, top_probability
from offramp.exits.predictors import LinearPredictor
from offramp.exits.similarity import Similarity
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.exits.thresholds import NEVER, Decaying, Fixed, PerExit, Threshold
from offramp.model.executor import FINAL
from offramp.testing.twin import summary_of
from tests.exits.rows import Heads, exit_rows

WIDTH = 64
LAYERS = (2, 5)


def hidden(count: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(count, WIDTH)) * 2.5).astype(np.float32)


def policy(threshold: Threshold, **more: object) -> ThresholdPolicy:
    heads = dict.fromkeys(LAYERS, FINAL)
    return ThresholdPolicy(layers=LAYERS, heads=heads, measure=margin, threshold=threshold, **more)  # type: ignore[arg-type]


def gate() -> dict[str, object]:
    weights = np.random.default_rng(9).normal(size=(1, WIDTH)).astype(np.float32)
    predictor = LinearPredictor(weights, np.zeros(1, dtype=np.float32))
    return {"predictors": dict.fromkeys(LAYERS, predictor), "predictor_threshold": Fixed(0.5)}


def similar() -> dict[str, object]:
    return {"predictors": dict.fromkeys(LAYERS, Similarity()), "predictor_threshold": Fixed(0.97)}


def test_rows_leave_from_the_threshold_on() -> None:
    h = hidden(40)
    scores = margin(summary_of(h))
    middle = float(np.sort(scores)[20])
    left = policy(Fixed(middle)).decide(exit_rows(h))
    assert np.array_equal(left, scores >= np.float32(middle))
    assert left.sum() == 20


def test_zero_lets_all_leave_and_never_asks_no_head() -> None:
    h, heads = hidden(6), Heads(WIDTH)
    assert policy(Fixed(0.0)).decide(exit_rows(h, heads=heads)).all()
    assert heads.num_rows == 6
    heads = Heads(WIDTH)
    assert not policy(Fixed(NEVER)).decide(exit_rows(h, heads=heads)).any()
    assert not policy(PerExit({5: 0.0})).decide(exit_rows(h, heads=heads)).any()
    assert heads.num_rows == 0
    assert policy(PerExit({5: 0.0})).decide(exit_rows(h, layer=5)).all()


@pytest.mark.parametrize("more", [{}, gate(), similar()], ids=["head", "predictor", "similarity"])
@pytest.mark.parametrize("threshold", [Fixed(0.3), Decaying(PerExit({2: 0.4}), 20)], ids=["fixed", "falling"])
def test_a_decision_is_the_rows_own(more: dict[str, object], threshold: Threshold) -> None:
    h = hidden(33)
    previous = h + hidden(33, seed=7) * np.linspace(0.01, 1, 33, dtype=np.float32)[:, None]
    whole = policy(threshold, **more).decide(exit_rows(h, previous=previous))
    assert 0 < whole.sum() < 33
    order = np.random.default_rng(4).permutation(33)
    shuffled = exit_rows(h[order], previous=previous[order], outputs=(order + 1).tolist())
    assert np.array_equal(policy(threshold, **more).decide(shuffled), whole[order])
    for row in range(33):
        one = slice(row, row + 1)
        alone = policy(threshold, **more).decide(exit_rows(h[one], previous=previous[one], outputs=[row + 1]))
        assert alone.tolist() == [whole[row]]


def test_the_head_runs_only_for_rows_that_the_predictor_passes() -> None:
    h, heads = hidden(30), Heads(WIDTH)
    passed = gate()["predictors"][2].scores(h, None) >= 0.5  # type: ignore[index]
    left = policy(Fixed(0.0), **gate()).decide(exit_rows(h, heads=heads))
    assert heads.num_rows == passed.sum() > 0
    assert np.array_equal(left, passed)


def test_nonsense_never_leaves() -> None:
    h = hidden(5)
    h[1, 3], h[2, 0], h[4] = np.nan, np.inf, -np.inf
    for more in ({}, gate(), similar()):
        left = policy(Fixed(0.0), **more).decide(exit_rows(h, previous=h))
        assert not left[[1, 2, 4]].any()
    assert policy(Fixed(0.0)).decide(exit_rows(h)).tolist() == [True, False, False, True, False]


def test_what_it_wants() -> None:
    plain = policy(Fixed(0.5), fill="propagate")
    assert (plain.layers, plain.fill, plain.head(5)) == (LAYERS, "propagate", FINAL)
    assert [plain.adaptive, plain.wants_labels, plain.wants_previous] == [False] * 3
    assert policy(Fixed(0.5), **similar()).wants_previous
    adaptive = policy(Recording())
    assert adaptive.adaptive
    assert adaptive.wants_labels


@dataclass
class Recording:
    """An adaptive threshold of 0.5 that notes what it hears."""

    adaptive: bool = True
    wants_labels: bool = True
    decisions: list[tuple[int, list[float], list[bool]]] = field(default_factory=list)
    labels: list[tuple[int, list[float], list[bool]]] = field(default_factory=list)

    def value(self, layer: int, output: int) -> float:
        return 0.5

    def decided(self, layer: int, scores: Scores, left: np.ndarray) -> None:
        self.decisions.append((layer, scores.tolist(), left.tolist()))

    def observe(self, layer: int, scores: Scores, agreed: np.ndarray) -> None:
        self.labels.append((layer, scores.tolist(), agreed.tolist()))


def test_labels_find_the_scores_of_their_tokens() -> None:
    threshold = Recording()
    learning = policy(threshold)
    h = np.zeros((3, WIDTH), dtype=np.float32)
    h[0, 0], h[1, 0] = 9.0, 8.0  # the third stays
    keys = [("a", 0), ("b", 0), ("b", 1)]
    rows = exit_rows(h, keys=keys, outputs=[4, 4, 6])
    assert learning.decide(rows).tolist() == [True, True, False]
    [(layer, scores, left)] = threshold.decisions
    assert (layer, left) == (2, [True, True, False])
    assert scores == margin(summary_of(h)).tolist()
    told = np.array([4, 4, 6, 4], dtype=np.int32)
    learning.observe(2, [("b", 0), ("a", 0), ("b", 1), ("c", 0)], told, np.array([True, False, True, True]))
    assert threshold.labels == [(2, [scores[1], scores[0]], [True, False])]
    learning.observe(2, keys, np.array([4, 4, 6], dtype=np.int32), np.array([True] * 3))
    assert len(threshold.labels) == 1, "a label counts once"


def test_a_forgotten_sequence_leaves_nothing() -> None:
    threshold = Recording()
    learning = policy(threshold)
    h = np.zeros((1, WIDTH), dtype=np.float32)
    h[0, 0] = 9.0
    learning.decide(exit_rows(h, keys=[("a", 0)], outputs=[4]))
    learning.forget(("a", 0))
    learning.forget(("never asked", 0))
    learning.observe(2, [("a", 0)], np.array([4], dtype=np.int32), np.array([True]))
    assert threshold.labels == []


def test_frozen_policies_keep_nothing() -> None:
    frozen = policy(Fixed(0.0))
    frozen.decide(exit_rows(hidden(4)))
    assert frozen._scores == {}


def test_a_threshold_set_at_a_score_lets_that_score_leave() -> None:
    """Scores are f32, thresholds f64 read back from JSON."""
    h = hidden(50)
    heads = dict.fromkeys(LAYERS, FINAL)
    for row, score in enumerate(top_probability(summary_of(h)).tolist()):
        at = ThresholdPolicy(layers=LAYERS, heads=heads, measure=top_probability, threshold=Fixed(float(repr(score))))
        above = Fixed(float(np.nextafter(score, 2)))
        over = ThresholdPolicy(layers=LAYERS, heads=heads, measure=top_probability, threshold=above)
        one = h[row : row + 1]
        assert at.decide(exit_rows(one)).tolist() == [True]
        assert over.decide(exit_rows(one)).tolist() == [False]


def test_parts_that_do_not_fit_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        ThresholdPolicy(layers=LAYERS, heads={2: FINAL}, measure=margin, threshold=Fixed(0.5))
    with pytest.raises(AssertionError):
        ThresholdPolicy(layers=(5, 2), heads=dict.fromkeys(LAYERS, FINAL), measure=margin, threshold=Fixed(0.5))
    with pytest.raises(AssertionError):
        policy(Fixed(0.5), predictors=dict.fromkeys(LAYERS, Similarity()))
