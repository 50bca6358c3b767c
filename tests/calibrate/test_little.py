"""Calibrations of a pair: replayed costs and losses, certified policies, and a promise that holds on fresh prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from offramp.calibrate import losses
from offramp.calibrate.answers import LittleRig, answer_all
from offramp.calibrate.little_candidates import PairCosts, candidates, replay
from offramp.calibrate.little_run import calibrate_pair
from offramp.calibrate.little_scores import LittleParts, PairTokens, score_pair
from offramp.calibrate.losses import token_loss
from offramp.calibrate.recipe import Recipe
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.core import SamplingParams
from offramp.engine.engine import Engine
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import Losses, hoeffding_bentkus_p, split
from offramp.llm.drafters import own_model
from offramp.llm.little import make_little
from offramp.llm.loading import LoadedModel
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.models import loaded_model
from tests.calibrate.flattering import flatter
from tests.calibrate.settling import DRAWN, GREEDY, MODEL_HASH, NUM_PAGES, prompts, settling_source, silent, stage
from tests.draft.weighted import cut_model

COUNT = 60
COSTS = PairCosts(round=0.1, verify=lambda num_rows: 1.0 + 0.02 * num_rows)
"""Of a little model that is ten times as fast."""
LITTLE_ALONE = BigLittlePolicy(fallback=0.0, rollback=1e6, max_run=16)


@cache
def pair(rest: float, *, other: bool = False) -> LoadedModel:
    """A model, and its first two layers, which say the same where the others change little; or another model's."""
    source = settling_source(rest)
    big = replace(loaded_model(build_executor(source, num_pages=NUM_PAGES, threads=1)), source_hash=MODEL_HASH)
    little = cut_model(settling_source(rest, seed=11) if other else source, 2, num_pages=NUM_PAGES)
    return replace(big, draft=replace(loaded_model(little), source_hash="6" * 64, name="little"))


def recipe(*risks: float, **more: object) -> Recipe:
    how: dict[str, object] = {"risks": risks or (0.15,), "delta": 0.1, "params": GREEDY, **more}
    return Recipe(**how)  # type: ignore[arg-type]


def rig(loaded: LoadedModel, params: SamplingParams, policies: dict[str, BigLittlePolicy]) -> LittleRig:
    assert loaded.draft is not None
    engine = Engine(
        loaded.executor,
        max_context=loaded.max_context,
        sample_rows=sample_rows,
        little=make_little(own_model(loaded, loaded.draft), policies),
    )
    return LittleRig(
        executor=loaded.executor,
        engine=engine,
        params=params,
        eos_token_ids=loaded.eos_token_ids,
        sample_rows=sample_rows,
    )


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_the_loss_is_what_the_engine_counts_while_it_happens(params: SamplingParams) -> None:
    """One prefill of the whole text afterwards, and the verdicts of every step, say the same of every token."""
    loaded = pair(0.5)
    here = rig(loaded, params, {"p": BigLittlePolicy(fallback=0.01, rollback=5.0, max_run=4)})
    before = here.engine.statistics.num_differing_tokens
    answers = answer_all(here, prompts(12), "p", silent)
    found = token_loss(here, lambda: [], loaded.tokenizer)(answers, silent)
    counted = here.engine.statistics.num_differing_tokens - before
    assert sum(loss * len(answer) for loss, answer in zip(found.tolist(), answers, strict=True)) == pytest.approx(
        counted
    )
    assert counted > 0
    assert here.engine.statistics.num_little_tokens == sum(answer.num_little for answer in answers)


def test_scores_are_what_the_little_model_would_write() -> None:
    """Behind each beginning of a plain answer, a policy that lets it write one token tells what that is."""
    loaded = pair(0.5)
    assert loaded.draft is not None
    draft = loaded.draft.executor
    here = rig(loaded, GREEDY, {})
    answers = answer_all(here, prompts(3), None, silent)
    little = LittleParts(draft, own_model(loaded, loaded.draft), Engine(draft, max_context=96))
    scored = score_pair(here, little, answers, silent)
    begun = [
        replace(answer.prompt, token_ids=np.concatenate([answer.prompt.token_ids, answer.token_ids[:output]]))
        for answer in answers
        for output in range(len(answer))
    ]
    alone = rig(loaded, SamplingParams(temperature=0, max_tokens=1), {"p": LITTLE_ALONE})
    written = [int(told.token_ids[0]) for told in answer_all(alone, begun, "p", silent)]
    plain = np.concatenate([answer.token_ids for answer in answers]).tolist()
    assert [one == other for one, other in zip(written, plain, strict=True)] == scored.agreed.tolist()
    assert 0 < scored.agreed.mean() < 1
    assert (scored.losses > 0).all()
    assert ((scored.sure > 0) & (scored.sure <= 1)).all()


def tokens(
    sure: Sequence[float], agreed: Sequence[int], losses_: Sequence[float], answers: Sequence[int]
) -> PairTokens:
    return PairTokens(np.array(sure), np.array(agreed, np.bool_), np.array(losses_), np.array(answers))


def test_a_replay_counts_rounds_rows_and_tokens() -> None:
    scored = tokens(
        [0.9, 0.9, 0.9, 0.2, 0.9, 0.9, 0.9], [1, 0, 1, 1, 1, 0, 1], [0, 1.0, 0, 0, 0, 9.0, 0], [0, 0, 0, 0, 0, 1, 1]
    )
    costs = PairCosts(round=0.5, verify=lambda num_rows: 10.0 + num_rows)
    lossy = BigLittlePolicy(fallback=0.5, rollback=2.0, max_run=4)
    first, second = replay(scored, costs, lossy)
    # three that stand, one of them differing, and the big one's at the unsure place; then one at the end
    assert (first.num_tokens, first.num_differing) == (5, 1)
    assert first.seconds == 4 * 0.5 + 14 + 0.5 + 12
    # two written, of which the first is cut; then one more
    assert (second.num_tokens, second.num_differing) == (2, 0)
    assert second.seconds == 2 * 0.5 + 13 + 0.5 + 12
    lossless = BigLittlePolicy(fallback=0.5, rollback=0.0, max_run=4)
    assert [each.num_differing for each in replay(scored, costs, lossless)] == [0, 0]


def test_candidates_rise_from_what_loses_nothing() -> None:
    rng = np.random.default_rng(4)
    count = 400
    agreed = rng.random(count) < 0.7
    scored = tokens(
        np.where(agreed, 0.9, 0.55).tolist(), agreed.tolist(), rng.uniform(0, 8, count).tolist(), [0] * count
    )
    some = candidates(scored, COSTS, num_layers=5, risk=0.2)
    assert len(some) > 3
    assert some[0].loss == 0.0
    assert [each.loss for each in some] == sorted(each.loss for each in some)
    gains = [each.predicted.gain for each in some]
    assert gains == sorted(gains)
    assert gains[0] > 1.0
    assert some[-1].loss <= 0.3
    slow = PairCosts(round=2.0, verify=COSTS.verify)
    assert candidates(scored, slow, num_layers=5, risk=0.2) == []


def test_a_little_model_that_agrees_is_certified() -> None:
    done = calibrate_pair(pair(0.0), prompts(COUNT), recipe(), stage, costs=COSTS)
    [entry] = done.entries
    assert entry.measured.mean_loss == 0.0
    assert entry.measured.num_prompts == done.num_calibration == 45
    assert entry.little_share > 0.5
    assert (entry.max_tokens, entry.loss, entry.measured.depth) == (8, "tokens", 5.0)
    assert (entry.circumstances.model, entry.circumstances.little_model) == (MODEL_HASH, "6" * 64)


@pytest.mark.parametrize("loss", ["tokens", "rouge"])
def test_the_measured_loss_is_that_of_the_calibration_prompts(loss: str) -> None:
    loaded, how = pair(0.3), recipe(0.25, loss=loss)
    [outcome] = calibrate_pair(loaded, prompts(COUNT), how, stage, costs=COSTS).outcomes
    _, held = split(COUNT, 15, how.seed)
    asked = [prompts(COUNT)[index] for index in held]
    assert outcome.walk.passed
    for tested in outcome.walk.passed:
        again = losses_under(loaded, tested.setting.policy, asked, how)
        assert tested.mean_loss == pytest.approx(again.mean(), abs=1e-12)
        assert tested.p_value == hoeffding_bentkus_p(math.fsum(again.tolist()), len(asked), 0.25) <= 0.1
    assert outcome.fields()["risk"] == 0.25


def losses_under(loaded: LoadedModel, policy: BigLittlePolicy, asked: list, how: Recipe) -> Losses:  # type: ignore[type-arg]
    here = rig(loaded, how.params, {"again": policy})
    answers = answer_all(here, asked, "again", silent)
    return losses.loss_of(how.loss)(here, lambda: answer_all(here, asked, None, silent), loaded.tokenizer)(
        answers, silent
    )


def test_a_stranger_is_certified_to_write_what_the_big_one_would_or_nothing() -> None:
    [outcome] = calibrate_pair(pair(0.5, other=True), prompts(COUNT), recipe(0.1), stage, costs=COSTS).outcomes
    entry = outcome.entry
    assert entry.measured.mean_loss <= 0.1
    if outcome.chosen is None:
        assert (entry.little_share, entry.measured.gain, entry.policy.writes) == (0.0, 1.0, False)
    else:
        assert entry.little_share < 0.5


def test_too_few_prompts_are_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequestError, match="prompts are too few"):
        calibrate_pair(pair(0.0), prompts(12), recipe(0.05), stage, costs=COSTS)


RUNS, DELTA, RISK, MOST = 24, 0.1, 0.15, 8
HOW = Recipe(risks=(RISK,), delta=DELTA, params=GREEDY)
"""As in `test_promise.py`."""


def certified(run: int) -> BigLittlePolicy | None:
    """By a calibration on prompts of this run's own."""
    asked = prompts(COUNT, seed=100 + run, longest=20)
    [outcome] = calibrate_pair(pair(0.3), asked, HOW, stage, costs=COSTS).outcomes
    return None if outcome.chosen is None else outcome.chosen.policy


def true_loss(policy: BigLittlePolicy) -> float:
    return float(losses_under(pair(0.3), policy, prompts(600, seed=1, longest=20), HOW).mean())


@pytest.mark.slow
def test_a_certified_risk_is_kept_on_fresh_prompts() -> None:
    policies = [policy for run in range(RUNS) if (policy := certified(run)) is not None]
    assert len(policies) > RUNS / 2, "the bound would hold if nothing were ever certified"
    assert sum(true_loss(policy) > RISK for policy in policies) <= MOST


@pytest.mark.slow
def test_losses_that_are_measured_wrongly_break_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    flatter(monkeypatch)
    monkeypatch.setattr("offramp.calibrate.little_run.candidates", lambda scored, costs, **more: _loose())
    policies = [policy for run in range(RUNS) if (policy := certified(run)) is not None]
    monkeypatch.undo()
    assert sum(true_loss(policy) > RISK for policy in policies) > MOST


def _loose() -> list:  # type: ignore[type-arg]
    from offramp.calibrate.candidates import Candidate
    from offramp.calibrate.predict import Prediction

    return [Candidate(LITTLE_ALONE, 0.0, Prediction(2.0, 5.0))]
