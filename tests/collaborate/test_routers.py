"""Every kind learns what can be learned, and what each computes is right."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.collaborate.router import ROUTERS, factors, mlp
from offramp.collaborate.router.choose import choices, fold_of, unseen_scores
from offramp.collaborate.router.curve import estimate_apgr
from offramp.collaborate.router.factors import FactorRouter
from offramp.collaborate.router.kind import Examples
from offramp.collaborate.router.knn import fit_knn
from offramp.collaborate.router.linear import fit_linear, logistic
from offramp.collaborate.router.outcomes import Outcomes, losses, targets
from offramp.collaborate.router.standard import Standard, sigmoid
from offramp.errors import InvalidRequestError
from tests.collaborate.prompts import FEATURES, examples

LEARNING = sorted(set(ROUTERS) - {"random"})


@pytest.mark.parametrize("kind", LEARNING)
def test_each_kind_beats_a_coin_on_prompts_it_never_saw(kind: str) -> None:
    router = ROUTERS[kind].fit(examples(), ROUTERS[kind].grid[-1], 0)
    fresh = examples(600, seed=6)
    apgr = estimate_apgr(router.scores(fresh.embeddings), fresh.outcomes.gains("little", "big"), draws=300)
    assert apgr.low is not None
    assert apgr.low > 0.5


def test_a_coin_does_not() -> None:
    fresh = examples(600, seed=6)
    scores = ROUTERS["random"].fit(fresh, {}, 0).scores(fresh.embeddings)
    assert not estimate_apgr(scores, fresh.outcomes.gains("little", "big"), draws=300).excludes(0.5)
    assert 0.45 < scores.mean() < 0.55


@pytest.mark.parametrize("kind", sorted(ROUTERS))
def test_scores_are_in_range_repeatable_and_each_prompts_own(kind: str) -> None:
    settings, data = ROUTERS[kind].grid[0], examples()
    router, again = (ROUTERS[kind].fit(data, settings, 3) for _ in range(2))
    scores = router.scores(data.embeddings)
    assert ((scores >= 0) & (scores < 1)).all()
    assert (scores == again.scores(data.embeddings)).all()
    alone = np.concatenate([router.scores(data.embeddings[place : place + 1]) for place in range(20)])
    assert alone == pytest.approx(scores[:20], abs=1e-12)
    assert router.scores(data.embeddings[:0]).shape == (0,)


@pytest.mark.parametrize("kind", LEARNING)
def test_outlandish_prompts_still_get_scores(kind: str) -> None:
    router = ROUTERS[kind].fit(examples(), ROUTERS[kind].grid[0], 0)
    far = np.full((2, FEATURES), 3e4, np.float32) * np.array([[1], [-1]], np.float32)
    scores = router.scores(far)
    assert ((scores >= 0) & (scores < 1)).all()


@pytest.mark.parametrize("count", [8, 200])  # fewer prompts than features, and more
def test_logistic_regression_is_at_its_optimum(count: int, rng: np.random.Generator) -> None:
    x, wanted, penalty = rng.standard_normal((count, FEATURES)), rng.choice([0.0, 0.5, 1.0], count), 0.7
    weights, bias = logistic(x, wanted, penalty)
    error = sigmoid(x @ weights + bias) - wanted
    assert x.T @ error + penalty * weights == pytest.approx(np.zeros(FEATURES), abs=1e-6)
    assert error.sum() == pytest.approx(0, abs=1e-6)


def test_logistic_regression_survives_what_is_separable() -> None:
    x = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    weights, bias = logistic(x, np.array([0.0, 0.0, 1.0, 1.0]), 1e-3)
    assert weights[0] > 2
    assert bias == pytest.approx(0, abs=1e-6)


def test_the_nearest_neighbour_and_the_mean_vote() -> None:
    """One neighbour at cosine 1 with target 1, one vote of the mean 1/2: 3/4."""
    points = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)
    quality = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    data = Examples(embeddings=points, outcomes=Outcomes(("little", "big"), quality), little="little", big="big")
    scores = fit_knn(data, {"neighbours": 1}, 0).scores(points)
    assert scores == pytest.approx([0.75, 0.25, 0.5, 0.5], abs=1e-3)


def test_standardized_rows_have_length_one_and_dead_features_count_nothing(rng: np.random.Generator) -> None:
    points = rng.standard_normal((300, 5)) * [1, 10, 0.1, 1000, 0] + [0, 5, 0, -100, 7]
    rows = Standard.of(points).apply(points)
    assert (rows**2).sum(axis=1).mean() == pytest.approx(1, abs=1e-3)
    assert (rows[:, 4] == 0).all()
    assert Standard.of(points).apply(np.full((1, 5), 1e3))[0, 4] == 0


def test_gradients_of_the_network_are_right(rng: np.random.Generator) -> None:
    x, wanted = rng.standard_normal((9, 4)), rng.random(9)
    parameters = {
        "first": rng.standard_normal((3, 4)),
        "first_bias": rng.standard_normal(3),
        "last": rng.standard_normal(3),
        "last_bias": rng.standard_normal(1),
    }

    def loss() -> float:
        inner = np.tanh(x @ parameters["first"].T + parameters["first_bias"])
        values = inner @ parameters["last"] + parameters["last_bias"][0]
        return float((np.logaddexp(0, values) - wanted * values).mean())

    check_slopes(parameters, mlp.slopes_of(parameters, x, wanted), loss)


def test_gradients_of_the_factors_are_right(rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 4))
    quality = rng.random((6, 3))
    quality[rng.random((6, 3)) < 0.3] = np.nan
    pairs = list(factors.compared_pairs(Outcomes(("a", "b", "c"), quality)))
    parameters = {"projection": 0.1 * rng.standard_normal((2, 4)), "vectors": rng.standard_normal((3, 3))}

    def loss() -> float:
        places = factors.projected(x, parameters["projection"])
        parts = []
        for one, other, known, wanted in pairs:
            values = places[known] @ (parameters["vectors"][other] - parameters["vectors"][one])
            parts.append(np.logaddexp(0, values) - wanted * values)
        return float(np.concatenate(parts).mean())

    check_slopes(parameters, factors.slopes_of(parameters, x, pairs), loss)


def check_slopes(parameters: dict[str, np.ndarray], slopes: dict[str, np.ndarray], loss: object) -> None:
    for name, values in parameters.items():
        for place in np.ndindex(values.shape):
            kept, step = values[place], 1e-6
            values[place] = kept + step
            above = loss()  # type: ignore[operator]
            values[place] = kept - step
            below = loss()  # type: ignore[operator]
            values[place] = kept
            assert slopes[name][place] == pytest.approx((above - below) / (2 * step), abs=1e-6), name


def test_factors_rank_models_that_no_prompt_compares() -> None:
    """a loses to b, b loses to c, on different prompts: c is better than a."""
    rng = np.random.default_rng(2)
    points = rng.standard_normal((200, FEATURES)).astype(np.float32)
    quality = np.full((200, 3), np.nan)
    quality[:100, :2] = [0.0, 1.0]
    quality[100:, 1:] = [0.0, 1.0]
    data = Examples(embeddings=points, outcomes=Outcomes(("a", "b", "c"), quality), little="a", big="b")
    router = ROUTERS["factors"].fit(data, {"decay": 0.1}, 0)
    assert isinstance(router, FactorRouter)
    assert (router.between("a", "c").scores(points) > router.scores(points)).mean() > 0.9
    assert (router.between("c", "a").scores(points) < 0.5).mean() > 0.9
    with pytest.raises(InvalidRequestError, match="big='d'"):
        router.between("a", "d")


def test_targets_and_losses_of_gains() -> None:
    gains = np.array([1.0, 0.5, 0.0, -1.0])
    assert targets(gains).tolist() == [1.0, 0.75, 0.5, 0.0]
    assert losses(gains).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_the_best_way_is_chosen_on_folds_that_did_not_teach() -> None:
    data = examples(200)
    found = choices({1: data, 2: noisy(data)}, ["random", "linear", "knn"], seed=1)
    assert found[0].kind in ("linear", "knn")
    assert found[-1].kind == "random"
    assert {each.depth for each in found if each.kind != "random"} == {1}
    assert found[0].fit({1: data}, 0).scores(data.embeddings).shape == (200,)


def test_what_can_not_be_learned_looks_no_better_than_a_coin() -> None:
    """The negative control: on its own training prompts it would look good."""
    data = examples(200, strength=0.0)
    [best] = choices({1: data}, ["linear"])
    assert not best.apgr.excludes(0.5)
    seen = fit_linear(data, {"penalty": 0.1}, 0).scores(data.embeddings)
    assert estimate_apgr(seen, data.outcomes.gains("little", "big"), draws=200).excludes(0.5)


def test_each_prompt_is_scored_by_a_router_that_never_saw_it() -> None:
    data = examples(60)
    folds = fold_of(60, 0)
    scores = unseen_scores("knn", {"neighbours": 1}, data, folds, 0)
    place = 7
    others = data.take(np.flatnonzero(folds != folds[place]))
    alone = fit_knn(others, {"neighbours": 1}, 0).scores(data.embeddings[place : place + 1])
    assert scores[place] == pytest.approx(alone[0], abs=1e-12)
    assert sorted(np.bincount(folds)) == [12] * 5


def noisy(data: Examples) -> Examples:
    points = np.random.default_rng(9).standard_normal(data.embeddings.shape).astype(np.float32)
    return Examples(embeddings=points, outcomes=data.outcomes, little=data.little, big=data.big)


def test_too_few_prompts_and_one_class_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="30 training prompts"):
        choices({1: examples(30)}, ["linear"])
    data = examples(100)
    same = Outcomes(("little", "big"), np.tile([0.0, 1.0], (100, 1)))
    one_class = Examples(embeddings=data.embeddings, outcomes=same, little="little", big="big")
    with pytest.raises(InvalidRequestError, match="one class"):
        choices({1: one_class}, ["linear"])
    for kind in ("linear", "knn", "mlp"):
        with pytest.raises(InvalidRequestError, match="one class"):
            ROUTERS[kind].fit(one_class, ROUTERS[kind].grid[0], 0)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="kind='deep'"):
        choices({1: examples(100)}, ["deep"])
