"""Certified thresholds of a cascade: from what the little model wrote, and what that loses against the big one's.

A part of the prompts, the tuning ones, teaches the score, if it is a trained one, and chooses which thresholds are
tested; the others test them (`offramp.collaborate.threshold.certify`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offramp.collaborate.cascade.calibration import BothRunning, CascadeCalibration
from offramp.collaborate.cascade.cascade import Answered, Answerer, Message, Output, first_answer
from offramp.collaborate.cascade.scorer import teach
from offramp.collaborate.cascade.scores import SCORES, Written, features, need
from offramp.collaborate.threshold import ThresholdCalibration, certify, path_of
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_delta, check_risk, check_sample, split
from offramp.exits.certificate import SamplingSettings
from offramp.params import check_choice, check_number, refused


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeRecipe:
    """What is certified, and for answers drawn how. Impossible values raise InvalidRequestError."""

    score: str
    params: SamplingParams
    risks: Sequence[float] = ()
    delta: float = 0.05
    seed: int = 0  # of the split

    def __post_init__(self) -> None:
        check_choice("score", self.score, SCORES)
        check_delta(self.delta)
        for risk in self.risks:
            check_risk(risk)
        _check_params(self.params)

    def check_enough(self, count: int, num_tuning: int) -> None:
        """Refuse too few prompts before anybody answers them."""
        if not 0 < num_tuning < count:
            raise InvalidRequestError(f"{count} conversations", hint="give hundreds, as your users have them")
        for risk in self.risks:
            check_sample(count - num_tuning, risk, self.delta)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What the little model wrote, and by how much it is worse than the big model's answer, in [0, 1]."""

    written: Written
    loss: float


def certified_cascade(
    judged: Sequence[Judged],
    recipe: CascadeRecipe,
    *,
    num_tuning: int,
    model: str,
    big_model: str | None = None,
    running: BothRunning | None = None,
) -> CascadeCalibration:
    """Of two models, by the hashes of their tensors, and how they ran.

    Raises InvalidRequestError, also where nothing can be taught.
    """
    recipe.check_enough(len(judged), num_tuning)
    tuning, testing = split(len(judged), num_tuning, recipe.seed)
    losses = np.array([each.loss for each in judged])
    scorer = None
    if SCORES[recipe.score].trained:
        rows = np.array([features(recipe.score, judged[place].written) for place in tuning])
        scorer = teach(rows, losses[tuning])
    scores = np.array([need(recipe.score, each.written, scorer) for each in judged])
    path = path_of(scores[tuning])
    found = [
        certify(scores[testing], losses[testing], path, risk=risk, delta=recipe.delta)
        for risk in sorted(set(recipe.risks))
    ]
    return CascadeCalibration(
        model=model,
        big_model=big_model,
        score=recipe.score,
        scorer=scorer,
        sampling=SamplingSettings.of(recipe.params),
        max_tokens=recipe.params.max_tokens,
        thresholds=ThresholdCalibration(
            scores=np.sort(scores[testing]), certified=tuple(entry for entry in found if entry is not None)
        ),
        running=running,
    )


Quality = Callable[[int, str], float]
"""How good an answer to the conversation of that number is, in [0, 1]."""


def calibrate_cascade(
    little: Answerer[Output],
    big: Answerer[Output],
    conversations: Sequence[Sequence[Message]],
    quality: Quality,
    params: SamplingParams,
    *,
    model: str,
    score: str,
    risks: Sequence[float] = (),
    delta: float = 0.05,
    tuning_share: float = 0.3,
    seed: int = 0,
) -> CascadeCalibration:
    """Ask both models everything, and certify thresholds: the loss is by how much the little one's answer is worse.

    `model` is the hash of the little model's tensors (`llm.model.source_hash`). A part of the conversations chooses
    what is tested, the others test it. Raises InvalidRequestError for too few, and for params that the certificate
    would not tell of.
    """
    recipe = CascadeRecipe(score=score, params=params, risks=risks, delta=delta, seed=seed)
    check_number("tuning_share", tuning_share, 0.0, 1.0, open_low=True, open_high=True)
    count = len(conversations)
    num_tuning = min(count - 1, max(1, round(tuning_share * count)))
    recipe.check_enough(count, num_tuning)
    judged = []
    for number, messages in enumerate(conversations):
        output, [written] = first_answer(little, messages, params, score)
        better = _quality(quality, number, big.chat(messages, params)) - _quality(quality, number, output)
        judged.append(Judged(written, max(0.0, better)))
    return certified_cascade(judged, recipe, num_tuning=num_tuning, model=model)


def _check_params(params: SamplingParams) -> None:
    """Refuse what would change answers without being kept."""
    asked = {
        "n": params.n != 1,  # quality is that of one answer
        "logit_bias": bool(params.logit_bias),
        "structured_outputs": params.structured_outputs is not None,
        "stop": bool(params.stop),
        "stop_token_ids": bool(params.stop_token_ids),
    }
    for name, given in asked.items():
        if given:
            raise refused(name, getattr(params, name), "its default in a calibration, which would not tell of it")


def _quality(quality: Quality, number: int, output: Answered) -> float:
    value = quality(number, output.outputs[0].text)
    check_number("quality", value, 0.0, 1.0)
    return value
