"""A frozen policy as data: what it makes, and what of a file it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from offramp.errors import CorruptModelError
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.predictors import LinearPredictor
from offramp.exits.thresholds import NEVER, Decaying, PerExit
from offramp.model.executor import FINAL
from offramp.model.metadata import Fields
from tests.exits.rows import exit_rows

HEADS = {6: FINAL, 12: FINAL, 18: FINAL}
PLAIN = FrozenPolicy(layers=(6, 12), thresholds=(0.1 + 0.2, 2 / 3), measure="margin")
FULL = FrozenPolicy(
    layers=(6, 12),
    thresholds=(0.9, NEVER),
    measure="entropy",
    predictor="pack",
    predictor_thresholds=(0.5, 0.25),
    horizon=128,
    temperature=3.0,
    fill="propagate",
)


def through_json(policy: FrozenPolicy) -> Fields:
    return Fields(json.loads(json.dumps(policy.fields())), "here")


@pytest.mark.parametrize("policy", [PLAIN, FULL])
def test_a_file_gives_the_same_policy_back(policy: FrozenPolicy) -> None:
    assert FrozenPolicy.read(through_json(policy)) == policy


def hidden(count: int) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(count, 40)) * 3).astype(np.float32)


def test_it_makes_a_policy_that_never_learns() -> None:
    made = PLAIN.policy(HEADS)
    assert (made.layers, made.fill, made.adaptive, made.wants_previous) == ((6, 12), "deferred", False, False)
    h = hidden(20)
    direct = FrozenPolicy.read(through_json(PLAIN)).policy(HEADS)
    for layer in made.layers:
        left = made.decide(exit_rows(h, layer=layer))
        assert 0 < left.sum() < 20
        assert np.array_equal(direct.decide(exit_rows(h, layer=layer)), left)


def test_falling_thresholds_and_predictors_are_built_in() -> None:
    weights = np.random.default_rng(1).normal(size=(1, 40)).astype(np.float32)
    predictors = dict.fromkeys((6, 12), LinearPredictor(weights, np.zeros(1, dtype=np.float32)))
    made = FULL.policy(HEADS, predictors)
    assert made.fill == "propagate"
    falling = Decaying(PerExit({6: 0.9, 12: NEVER}), 128, 3.0)
    assert made._threshold.value(6, 40) == falling.value(6, 40)
    assert not made.decide(exit_rows(hidden(20), layer=12)).any()
    with pytest.raises(AssertionError, match="predictors"):
        FULL.policy(HEADS)


def test_similarity_needs_no_pack() -> None:
    policy = FrozenPolicy(
        layers=(6,), thresholds=(0.0,), measure="margin", predictor="similarity", predictor_thresholds=(0.9,)
    )
    made = policy.policy(HEADS)
    assert made.wants_previous
    h = hidden(4)
    assert made.decide(exit_rows(h, previous=h, layer=6)).all()
    assert not made.decide(exit_rows(h, previous=-h, layer=6)).any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layers", []),
        ("layers", [12, 6]),
        ("layers", [0, 6]),
        ("layers", [6, 6]),
        ("layers", [6.5, 12]),
        ("layers", "6"),
        ("thresholds", [0.5]),
        ("thresholds", [0.5, -0.1]),
        ("thresholds", [0.5, 3.0]),
        ("thresholds", [0.5, float("nan")]),
        ("measure", "certainty"),
        ("measure", 3),
        ("predictor", "other"),
        ("predictor", None),
        ("predictor_thresholds", []),
        ("horizon", 0),
        ("temperature", -1),
        ("fill", "eager"),
    ],
)
def test_impossible_fields_are_refused_by_name(name: str, value: object) -> None:
    fields = Fields({**FULL.fields(), name: value}, "calibration.json: entry 0")
    with pytest.raises(CorruptModelError, match=rf"entry 0.*{name}"):
        FrozenPolicy.read(fields)


@pytest.mark.parametrize("name", [name for name in FULL.fields() if name != "horizon"])
def test_missing_fields_are_refused_by_name(name: str) -> None:
    fields = FULL.fields()
    del fields[name]
    with pytest.raises(CorruptModelError, match=name):
        FrozenPolicy.read(Fields(fields, "here"))
