"""A trained score: what it reads, what it learns, the promise on fresh data, and the file that keeps it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.collaborate.cascade.calibration import CascadeCalibration, read_cascade, write_cascade
from offramp.collaborate.cascade.cascade import Cascade, neediest
from offramp.collaborate.cascade.certify import CascadeRecipe, Judged, certified_cascade
from offramp.collaborate.cascade.scorer import Scorer, teach
from offramp.collaborate.cascade.scores import LEAST_LOGPROB, SCORES, Written, features, need
from offramp.collaborate.threshold import certify, path_of
from offramp.core import SamplingParams
from offramp.errors import CorruptModelError, InvalidRequestError
from tests.collaborate.test_cascade import GREEDY, Teller, chat
from tests.serve.piping import HASH

RISK, DELTA = 0.1, 0.1
RUNS, PROMPTS, TUNING = 200, 300, 75
MOST_VIOLATIONS = 34
"""The 99.9 % quantile of 200 events of chance 0.1."""
RECIPE = CascadeRecipe(score="trained", params=GREEDY, risks=(RISK,), delta=DELTA)


def test_what_it_reads_by_hand() -> None:
    written = Written(text="a b", logprobs=[-1.0, -3.0], samples=["a b", "c d"])
    found = features("trained-agreement", written)
    assert found == pytest.approx([-2.0, -2.8, math.log(3), 1 / 3])
    assert features("trained", written) == found[:3]
    assert features("trained", Written(text="", logprobs=[]))[:2] == [LEAST_LOGPROB] * 2
    assert features("trained", Written(text="x", logprobs=[math.nan, -math.inf, -math.inf]))[0] == LEAST_LOGPROB


def test_a_score_is_the_logistic_of_its_features() -> None:
    scorer = Scorer(weights=(-1.0, 0.0, 0.0), bias=-2.0)
    unsure = Written(text="x", logprobs=[-3.0])
    assert need("trained", unsure, scorer) == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert 0.999 < need("trained", Written(text="", logprobs=[]), scorer) < 1.0
    sure = Written(text="x", logprobs=[-0.1])
    assert (
        neediest("trained", [sure, unsure], scorer) == need("trained", unsure, scorer) > need("trained", sure, scorer)
    )


def population(rng: np.random.Generator, count: int) -> list[Judged]:
    """Answers of different lengths and certainty: the longer and the less sure, the likelier wrong."""
    judged = []
    for length, sureness in zip(rng.integers(1, 20, count), rng.exponential(1.0, count), strict=True):
        wrong = rng.random() < 1 / (1 + math.exp(4.0 - sureness - 0.15 * length))
        judged.append(Judged(Written(text="x", logprobs=[-sureness] * int(length)), float(wrong)))
    return judged


def certified(judged: list[Judged], seed: int, recipe: CascadeRecipe = RECIPE) -> CascadeCalibration:
    return certified_cascade(judged, replace(recipe, seed=seed), num_tuning=TUNING, model=HASH)


def drawn(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and losses of many answers at once: the longer and the less sure, the likelier wrong."""
    found = np.column_stack([-rng.exponential(1.0, count), -rng.exponential(2.0, count), rng.uniform(0, 5, count)])
    chances = 1 / (1 + np.exp(4.0 + found[:, 0] + found[:, 1] / 2 - 0.5 * found[:, 2]))
    return found, (rng.random(count) < chances).astype(np.float64)


def lost(scores: np.ndarray, losses: np.ndarray, threshold: float) -> float:
    return float(np.where(scores >= threshold, 0.0, losses).mean())


def test_it_learns_what_one_number_does_not_tell(rng: np.random.Generator) -> None:
    scorer = teach(*drawn(rng, 3000))
    fresh, losses = drawn(rng, 20000)

    def right_order(scores: np.ndarray) -> float:
        """How likely a wrong answer's score is the higher one (area under the curve)."""
        ranks, wrong = scores.argsort().argsort(), losses > 0
        return float((ranks[wrong].mean() - (wrong.sum() - 1) / 2) / (~wrong).sum())

    assert right_order(scorer.scores(fresh)) > max(right_order(-fresh[:, 0]), right_order(-fresh[:, 1])) + 0.03


def test_a_certified_loss_holds_on_fresh_answers(rng: np.random.Generator) -> None:
    """One calibration teaches, chooses and tests; what its threshold truly loses is seen on very many fresh answers."""
    fresh, fresh_losses = drawn(rng, 20000)
    violations = some = tempted = 0
    for _ in range(RUNS):
        rows, losses = drawn(rng, PROMPTS)
        scorer = teach(rows[:TUNING], losses[:TUNING])
        scores, truly = scorer.scores(rows), scorer.scores(fresh)
        path = path_of(scores[:TUNING])
        found = certify(scores[TUNING:], losses[TUNING:], path, risk=RISK, delta=DELTA)
        some += found is not None
        violations += found is not None and lost(truly, fresh_losses, found.threshold) > RISK
        within = [threshold for threshold in path if lost(scores[TUNING:], losses[TUNING:], threshold) <= RISK]
        tempted += bool(within) and lost(truly, fresh_losses, within[-1]) > RISK
    assert violations <= MOST_VIOLATIONS
    assert some > RUNS / 2, "a certificate that is never given holds easily"
    assert tempted > MOST_VIOLATIONS, "the negative control: the last threshold within the risk, without a test"


def test_answers_that_lose_more_than_the_risk_are_certified_nothing(rng: np.random.Generator) -> None:
    judged = [replace(each, loss=0.9 + each.loss / 10) for each in population(rng, PROMPTS)]
    recipe = replace(RECIPE, risks=(0.02,))
    assert certified(judged, 1, recipe).thresholds.certified == ()


@pytest.mark.parametrize("loss", [0.0, 1.0, 0.25])
def test_losses_of_one_class_teach_nothing(loss: float, rng: np.random.Generator) -> None:
    judged = [replace(each, loss=loss) for each in population(rng, PROMPTS)]
    with pytest.raises(InvalidRequestError, match=f"75 prompts, which all lose {loss:g}") as caught:
        certified(judged, 1)
    assert caught.value.param == "score"
    assert certified(judged, 1, replace(RECIPE, score="mean")).scorer is None


@pytest.mark.parametrize("loss", [math.nan, -0.1, 1.5])
def test_losses_that_are_none_are_refused(loss: float, rng: np.random.Generator) -> None:
    judged = population(rng, PROMPTS)
    for score in ("trained", "mean"):
        with pytest.raises(InvalidRequestError, match="losses="):
            certified([replace(each, loss=loss) for each in judged], 1, replace(RECIPE, score=score))


def test_no_prompts_and_impossible_recipes_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="0 conversations"):
        certified_cascade([], RECIPE, num_tuning=0, model=HASH)
    for options, name in (({"score": "mood"}, "score"), ({"risks": (math.nan,)}, "risk"), ({"delta": 1.0}, "delta")):
        with pytest.raises(InvalidRequestError, match=name):
            replace(RECIPE, **options)  # type: ignore[arg-type]


def test_the_front_door_takes_what_was_taught() -> None:
    scorer = Scorer(weights=(-1.0, 0.0, 0.0), bias=0.0)
    cascade = Cascade(Teller("a", 0.5), Teller("b", 0.5), score="trained", scorer=scorer, threshold=0.6)
    answer = cascade.chat(chat("x"), SamplingParams(temperature=0))
    assert answer.score == pytest.approx(2 / 3)
    assert answer.answered_by == "big"
    for options in ({"score": "trained"}, {"score": "mean", "scorer": scorer}):
        with pytest.raises(InvalidRequestError, match="scorer"):
            Cascade(Teller("a"), Teller("b"), threshold=0.5, **options)  # type: ignore[arg-type]


@pytest.fixture
def written_file(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, CascadeCalibration]:
    kept = certified(population(rng, PROMPTS), 1)
    kept = replace(kept, big_model="cd" * 32)
    write_cascade(tmp_path / "cascade.json", kept, {"loss": "rouge"})
    return tmp_path / "cascade.json", kept


def test_what_was_taught_is_back_as_it_was(written_file: tuple[Path, CascadeCalibration]) -> None:
    path, kept = written_file
    read = read_cascade(path)
    assert (read.score, read.scorer, read.big_model) == ("trained", kept.scorer, "cd" * 32)
    assert json.loads(path.read_text())["provenance"] == {"loss": "rouge"}
    read.check_fits_big("cd" * 32)
    with pytest.raises(InvalidRequestError, match="belongs to a big model"):
        read.check_fits_big("ef" * 32)
    replace(read, big_model=None).check_fits_big("ef" * 32)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "scorer"),
        ({"weights": [1.0], "bias": 0.0}, "weights"),
        ({"weights": [1.0, 2.0, "x"], "bias": 0.0}, "weights"),
        ({"weights": [1.0, 2.0, 3.0]}, "bias"),
        ({"weights": [1.0, 2.0, 3.0], "bias": 0.0, "colour": 1}, "colour"),
    ],
)
def test_damage_is_refused_by_its_field(value: Any, named: str, written_file: tuple[Path, CascadeCalibration]) -> None:
    path, _ = written_file
    path.write_text(json.dumps({**json.loads(path.read_text()), "scorer": value}))
    with pytest.raises(CorruptModelError, match=named):
        read_cascade(path)


def test_every_score_that_is_taught_has_its_features() -> None:
    written = Written(text="x", logprobs=[-1.0], samples=["x"])
    for name, kind in SCORES.items():
        if kind.trained:
            assert len(features(name, written)) == kind.num_features
