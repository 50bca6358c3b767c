"""A whole calibration on toys: what it certifies, what it never does, and that nothing but the settings decides it."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from offramp.calibrate import run
from offramp.calibrate.answers import answer_all
from offramp.calibrate.losses import loss_of
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.recipe import Recipe
from offramp.calibrate.run import Calibration, calibrate
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import hoeffding_bentkus_p, split
from offramp.exits.certificate import CertifiedEntry, choose
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill
from offramp.llm.loading import LoadedModel
from offramp.testing.packs import random_pack
from tests.calibrate.settling import (
    CONFIG,
    COSTS,
    DRAWN,
    GREEDY,
    LAYERS,
    MODEL_HASH,
    NUM_LAYERS,
    pack_of,
    prompts,
    rig,
    settling_model,
    shared_pack,
    silent,
    stage,
)

COUNT = 60
"""Of which 15 tune and 45 test."""


def recipe(*risks: float, fill: Fill = "deferred", params: SamplingParams = GREEDY, **more: object) -> Recipe:
    return Recipe(risks=risks or (0.1,), delta=0.1, fill=fill, params=params, **more)  # type: ignore[arg-type]


def calibrated(
    loaded: LoadedModel, recipe: Recipe, asked: list[CalibrationPrompt] | None = None, at_once: int = 16
) -> Calibration:
    return calibrate(loaded, asked or prompts(COUNT), recipe, stage, costs=COSTS, at_once=at_once)


def without_gain(entry: CertifiedEntry) -> CertifiedEntry:
    """The gain is timed; everything else is not."""
    return replace(entry, measured=replace(entry.measured, gain=0.0))


def losses_under(loaded: LoadedModel, policy: FrozenPolicy, asked: list[CalibrationPrompt], how: Recipe) -> np.ndarray:
    assert loaded.exits is not None
    here = rig(loaded, how.params, {"again": loaded.exits.policy(policy)})
    answers = answer_all(here, asked, "again", silent)
    return loss_of(how.loss)(here, lambda: answer_all(here, asked, None, silent), loaded.tokenizer)(answers, silent)


@pytest.mark.parametrize("fill", ["deferred", "propagate"])
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_exits_that_are_full_depth_are_certified(fill: Fill, params: SamplingParams) -> None:
    done = calibrated(settling_model(0.0), recipe(fill=fill, params=params))
    [entry] = done.entries
    assert entry.measured.mean_loss == 0.0
    assert entry.measured.num_prompts == done.num_calibration == 45
    assert entry.policy.layers[0] == LAYERS[0]
    assert LAYERS[0] <= entry.measured.depth < NUM_LAYERS - 1
    assert (entry.policy.fill, entry.max_tokens, entry.loss) == (fill, params.max_tokens, "tokens")


@pytest.mark.parametrize("loss", ["tokens", "rouge"])
def test_the_measured_loss_is_that_of_the_calibration_prompts(loss: str) -> None:
    loaded, how = settling_model(0.3), recipe(0.25, loss=loss)
    [outcome] = calibrated(loaded, how).outcomes
    _, held = split(COUNT, 15, how.seed)
    asked = [prompts(COUNT)[index] for index in held]
    assert outcome.walk.passed
    for tested in outcome.walk.passed:
        again = losses_under(loaded, tested.setting.policy, asked, how)
        assert tested.mean_loss == pytest.approx(again.mean(), abs=1e-12)
        assert tested.p_value == hoeffding_bentkus_p(math.fsum(again.tolist()), len(asked), 0.25) <= 0.1
    assert outcome.entry.measured.mean_loss == outcome.walk.passed[-1].mean_loss > 0
    if outcome.walk.failed is not None:
        assert outcome.walk.failed.p_value > 0.1


def test_exits_that_disagree_are_never_certified() -> None:
    """Heads that know one token alone, and are sure of it: nothing is left but full depth."""
    for fill in ("deferred", "propagate"):
        one = np.array([7], np.int32)
        loaded = settling_model(0.0, random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS, vocab_ids=one))
        [outcome] = calibrated(loaded, recipe(fill=fill)).outcomes
        assert outcome.chosen is None
        assert outcome.entry.measured.depth == NUM_LAYERS
        assert outcome.entry.measured.mean_loss == 0.0
        assert choose([outcome.entry], 0.1) is None, "full depth runs"
        assert losses_under(loaded, outcome.entry.policy, prompts(5), recipe()).tolist() == [0.0] * 5


def test_a_broken_exit_is_passed_over_for_a_good_one() -> None:
    broken = next(iter(random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS).exits.values())).head
    [entry] = calibrated(settling_model(0.0, pack_of(broken, at=LAYERS[0])), recipe()).entries
    assert entry.policy.layers == (LAYERS[1],)
    assert entry.measured.mean_loss == 0.0


def test_an_exit_that_is_broken_for_others_only_fails_its_test() -> None:
    """Policies come from tuning prompts; what calibration prompts say of them decides."""
    loaded, how = settling_model(0.3), recipe(0.2)
    asked = prompts(COUNT)
    tuning, held = split(COUNT, 15, how.seed)
    honest = calibrated(loaded, how, asked).outcomes[0]
    assert honest.chosen is not None
    # the same prompts tune, and of those that test each is one on which the chosen policy loses
    losses = losses_under(loaded, honest.chosen.policy, prompts(150, seed=9), how)
    hard = [prompts(150, seed=9)[index] for index in np.argsort(-losses)[:45]]
    mixed = list(asked)
    for index, prompt in zip(held, hard, strict=True):
        mixed[index] = prompt
    outcome = calibrated(loaded, how, mixed).outcomes[0]
    assert honest.chosen.policy not in [tested.setting.policy for tested in outcome.walk.passed]
    assert len(tuning) == 15


def test_answers_and_entries_do_not_depend_on_the_batch() -> None:
    short = replace(DRAWN, max_tokens=6)
    for fill in ("deferred", "propagate"):
        how = recipe(0.3, fill=fill, params=short)  # type: ignore[arg-type]
        [alone], [together] = (
            [without_gain(entry) for entry in calibrated(settling_model(0.3), how, prompts(32), at_once).entries]
            for at_once in (1, 16)
        )
        assert alone == together


def test_the_seed_decides_split_and_draws() -> None:
    def entry(seed: int) -> CertifiedEntry:
        return without_gain(calibrated(settling_model(0.3), recipe(0.3, seed=seed), prompts(32)).entries[0])

    assert entry(1) == entry(1)
    assert entry(1) != entry(2)


def test_each_risk_has_an_entry_in_rising_order_and_none_is_tested_twice() -> None:
    stages: list[str] = []

    def told(text: str) -> object:
        stages.append(text)
        return silent

    done = calibrate(settling_model(0.0), prompts(COUNT), recipe(0.3, 0.1, 0.3), told, costs=COSTS)  # type: ignore[arg-type]
    assert [entry.risk for entry in done.entries] == [0.1, 0.3]
    answering = [text for text in stages if text.endswith(": answering calibration prompts")]
    assert all(re.fullmatch(r"risk 0\.[13], policy \d+ of \d+: .*", text) for text in answering), answering
    first = done.outcomes[0].walk
    if first.failed is None:
        most = len(first.passed)
        assert answering[:most] == [
            f"risk 0.1, policy {n} of {most}: answering calibration prompts" for n in range(1, most + 1)
        ]
    assert len(answering) == len(set(answering)) == len({e.policy for o in done.outcomes for e in _tested(o)})


def _tested(outcome: run.RiskOutcome) -> list[run.Candidate]:
    tests = [*outcome.walk.passed, *([outcome.walk.failed] if outcome.walk.failed else [])]
    return [each.setting for each in tests]


def test_nothing_is_tested_that_is_not_predicted_to_be_faster() -> None:
    dear = replace(COSTS, ask=dict.fromkeys(LAYERS, 100.0))
    done = calibrate(settling_model(0.0), prompts(COUNT), recipe(), stage, costs=dear)
    [outcome] = done.outcomes
    assert (outcome.chosen, outcome.walk.passed, outcome.walk.failed) == (None, (), None)
    assert choose(done.entries, 0.1) is None


def test_too_few_prompts_are_refused_before_anything_runs() -> None:
    loaded = settling_model(0.0)
    with pytest.raises(InvalidRequestError, match="20 prompts are too few"):
        calibrated(loaded, recipe(), prompts(20))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("risk", [0.0, 1.0, -0.1, float("nan"), float("inf")]),
        ("delta", [0.0, 1.0, float("nan")]),
        ("loss", ["bleu"]),
        ("fill", ["eager"]),
        ("seed", [-1, 2**64]),
    ],
)
def test_impossible_settings_are_refused_by_name(field: str, values: list[object]) -> None:
    for value in values:
        named = {"risks": (value,)} if field == "risk" else {"risks": (0.1,), field: value}
        with pytest.raises(InvalidRequestError, match=field):
            Recipe(params=GREEDY, **named)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="no risk"):
        Recipe(risks=(), params=GREEDY)
    with pytest.raises(InvalidRequestError, match="stop"):
        Recipe(risks=(0.1,), params=replace(GREEDY, stop=("x",)))
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        Recipe(risks=(0.1,), params=replace(GREEDY, max_tokens=None))


def test_an_interrupt_leaves_the_model_usable() -> None:
    loaded = settling_model(0.0)

    def interrupting(text: str) -> object:
        def tell(done: int, total: int) -> None:
            if done == 7:
                raise KeyboardInterrupt

        return tell

    with pytest.raises(KeyboardInterrupt):
        calibrate(loaded, prompts(COUNT), recipe(), interrupting, costs=COSTS)  # type: ignore[arg-type]
    assert calibrated(loaded, recipe()).entries[0].measured.mean_loss == 0.0


def test_costs_are_measured_where_none_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path))
    began = time.monotonic()
    done = calibrate(settling_model(0.0, shared_pack()), prompts(COUNT), recipe(), stage)
    assert time.monotonic() - began < 30
    assert len(done.entries) == 1
    assert done.entries[0].measured.mean_loss == 0.0
