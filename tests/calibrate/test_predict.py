"""Predictions replay the engine: same depths and decisions as really generated, and costs by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.calibrate.answers import answer_all
from offramp.calibrate.candidates import best_path
from offramp.calibrate.predict import decide, predict
from offramp.calibrate.scores import ScoredTokens, score_tokens
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill
from offramp.exits.thresholds import NEVER
from tests.calibrate.settling import COSTS, LAYERS, NUM_LAYERS, prompts, rig, settling_model, silent

FULL = COSTS.call + NUM_LAYERS * 1.0 + COSTS.head + COSTS.step


def scored(*leaving: tuple[int, ...]) -> ScoredTokens:
    """Answers whose tokens (the first one not counted) have a score of 0.9 at the exit with that index alone."""
    asked = np.concatenate([[False, *(True for _ in each)] for each in leaving])
    scores = np.full((len(asked), 2), 0.1, np.float32)
    exits = np.concatenate([[2, *each] for each in leaving])
    for exit_ in (0, 1):
        scores[exits == exit_, exit_] = 0.9
    scores[~asked] = np.nan
    return ScoredTokens(
        layers=LAYERS,
        measures={"margin": scores},
        predictors={"pack": scores},
        agreed=scores > 0.5,
        prompts=np.repeat(np.arange(len(leaving)), [len(each) + 1 for each in leaving]),
        asked=asked,
    )


def policy(fill: Fill = "deferred", **more: object) -> FrozenPolicy:
    return replace(FrozenPolicy(layers=LAYERS, thresholds=(0.5, 0.5), measure="margin", fill=fill), **more)


def gain(seconds: float, count: int) -> object:
    return pytest.approx(count * FULL / seconds)


def test_what_never_leaves_pays_for_asking() -> None:
    found = predict(scored((2, 2)), policy(thresholds=(NEVER, NEVER)), COSTS, NUM_LAYERS)
    assert found.gain == gain(2 * (FULL + 2 * COSTS.call + 2 * 0.2), 2)
    assert found.depth == NUM_LAYERS


def test_what_is_projected() -> None:
    """One leaves after 2 layers, one after 3, one stays; the first token of the answer took all."""
    found = predict(scored((0, 1, 2)), policy("propagate"), COSTS, NUM_LAYERS)
    first = COSTS.call + 2.0 + 0.2 + 3 * COSTS.fill
    second = 2 * COSTS.call + 3.0 + 2 * 0.2 + 2 * COSTS.fill
    last = 3 * COSTS.call + 5.0 + 2 * 0.2 + COSTS.head
    assert found.gain == gain(first + second + last + 3 * COSTS.step, 3)
    assert found.depth == (5 + 2 + 3 + 5) / 4


def test_what_is_owed_is_paid_by_the_next_that_goes_deeper() -> None:
    """The debt of 2 layers joins there, and goes on beside its payer."""
    found = predict(scored((0, 2)), policy(), COSTS, NUM_LAYERS)
    first = COSTS.call + 2.0 + 0.2
    payer = 3 * COSTS.call + 2.0 + 3 * 1.05 + 2 * 0.2 + COSTS.head
    assert found.gain == gain(first + payer + 2 * COSTS.step, 2)


def test_a_debt_goes_along_to_the_exit_of_a_deeper_one() -> None:
    found = predict(scored((0, 1, 2)), policy(), COSTS, NUM_LAYERS)
    first = COSTS.call + 2.0 + 0.2
    second = 2 * COSTS.call + 2.0 + 1.05 + 2 * 0.2
    last = 3 * COSTS.call + 3.0 + 2 * 1.1 + 2 * 0.2 + COSTS.head
    assert found.gain == gain(first + second + last + 3 * COSTS.step, 3)


def test_debts_end_with_their_answer() -> None:
    once = predict(scored((0,)), policy(), COSTS, NUM_LAYERS)
    assert predict(scored((0,), (0,), (0,)), policy(), COSTS, NUM_LAYERS).gain == pytest.approx(once.gain)


def test_who_owes_four_pays() -> None:
    found = predict(scored((0,) * 5), policy(), COSTS, NUM_LAYERS)
    early = 4 * (COSTS.call + 2.0 + 0.2)
    forced = 2 * COSTS.call + 2.0 + 3 * COSTS.layer[4] + 0.2
    assert found.gain == gain(early + forced + 5 * COSTS.step, 5)


def test_a_predictor_keeps_rows_from_the_head() -> None:
    gated = policy("propagate", predictor="pack", predictor_thresholds=(0.5, 0.5))
    found = predict(scored((2, 1)), gated, COSTS, NUM_LAYERS)
    stays = 3 * COSTS.call + 5.0 + COSTS.head
    leaves = 2 * COSTS.call + 3.0 + 0.2 + 2 * COSTS.fill
    assert found.gain == gain(stays + leaves + 4 * 0.01 + 2 * COSTS.step, 2)


def test_answers_of_one_token_gain_nothing() -> None:
    assert predict(scored((), ()), policy(), COSTS, NUM_LAYERS).gain == 1.0


@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("predictor", ["none", "similarity"])
def test_decisions_are_those_of_the_engine(fill: Fill, predictor: str) -> None:
    """Up to the first token that leaves with another one than full depth's, and where K/V stay exact."""
    loaded = settling_model(0.7)
    assert loaded.exits is not None
    frozen = policy(fill, thresholds=(0.004, 0.003))
    if predictor != "none":
        frozen = replace(frozen, predictor=predictor, predictor_thresholds=(0.9, 0.95))
    full = answer_all(rig(loaded), prompts(12), None, silent)
    decided = decide(score_tokens(rig(loaded), loaded.exits, full, silent), frozen)
    depths = np.array([*LAYERS, NUM_LAYERS])[decided.left]
    early = answer_all(rig(loaded, policies={"early": loaded.exits.policy(frozen)}), prompts(12), "early", silent)
    start = num_left = 0
    for one, other in zip(early, full, strict=True):
        mine = depths[start : start + len(other)]
        start += len(other)
        for place in range(min(len(one), len(other))):
            assert one.layers[place] == mine[place]
            num_left += int(mine[place] < NUM_LAYERS)
            if one.token_ids[place] != other.token_ids[place] or (fill == "propagate" and mine[place] < NUM_LAYERS):
                break
    assert num_left > 5


def test_paths_rise_in_loss_and_gain_and_beat_full_depth() -> None:
    loaded = settling_model(0.4)
    assert loaded.exits is not None
    here = rig(loaded)
    tokens = score_tokens(here, loaded.exits, answer_all(here, prompts(40), None, silent), silent)
    path = best_path(tokens, COSTS, num_layers=NUM_LAYERS, fill="deferred", risk=0.3, passable=0.2)
    assert len(path) >= 2
    assert [each.loss for each in path] == sorted({each.loss for each in path})
    assert [each.predicted.gain for each in path] == sorted({each.predicted.gain for each in path})
    assert path[0].predicted.gain > 1
    assert all(each.loss <= 1.5 * 0.3 for each in path)
    dear = replace(COSTS, ask=dict.fromkeys(LAYERS, 10.0))
    assert best_path(tokens, dear, num_layers=NUM_LAYERS, fill="deferred", risk=0.3, passable=0.2) == []
