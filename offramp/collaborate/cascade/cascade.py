"""Two models as one, from Python: the little one answers, and where its score reaches a threshold the big one does.

cascade = Cascade(LLM("small"), LLM("big"), score="mean", threshold=0.4)
answer = cascade.chat([{"role": "user", "content": "What is gravity?"}], SamplingParams(temperature=0))
print(answer.answered_by, answer.output.outputs[0].text)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from offramp.collaborate.cascade.calibration import CascadeCalibration
from offramp.collaborate.cascade.scores import SAMPLE_TEMPERATURE, SAMPLE_TOKENS, SCORES, Written, need
from offramp.collaborate.threshold import ThresholdCalibration, calls_big, certify, check_threshold, path_of
from offramp.core import SamplingParams, TokenLogprobs
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_sample, split
from offramp.exits.certificate import SamplingSettings
from offramp.params import check_choice, check_number

Message = Mapping[str, object]
Who = Literal["little", "big"]


class AnswerChoice(Protocol):
    """One choice of an answer."""

    @property
    def text(self) -> str: ...
    @property
    def logprobs(self) -> Sequence[TokenLogprobs] | None: ...


class Answered(Protocol):
    """An answer, as `LLM.chat` gives it."""

    @property
    def outputs(self) -> Sequence[AnswerChoice]: ...


Output = TypeVar("Output", bound=Answered)
Output_co = TypeVar("Output_co", bound=Answered, covariant=True)


class Answerer(Protocol[Output_co]):
    """Whoever answers conversations: an `LLM`."""

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Output_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeAnswer(Generic[Output]):
    """The answer, who gave it, and the score that decided."""

    output: Output
    answered_by: Who
    score: float


class Cascade(Generic[Output]):
    """Asks the little model first. `num_calls` counts answers by who gave them."""

    def __init__(self, little: Answerer[Output], big: Answerer[Output], *, score: str, threshold: float) -> None:
        """`threshold` 0 always asks the big model, 1 never."""
        check_choice("score", score, SCORES)
        check_threshold(threshold)
        self._little = little
        self._big = big
        self._score = score
        self._threshold = threshold
        self.num_calls: dict[Who, int] = {"little": 0, "big": 0}

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> CascadeAnswer[Output]:
        """The answer of one of the two."""
        params = params or SamplingParams()
        output, score = first_answer(self._little, messages, params, self._score)
        who: Who = "little"
        if calls_big(score, self._threshold):
            output, who = self._big.chat(messages, params), "big"
        self.num_calls[who] += 1
        return CascadeAnswer(output=output, answered_by=who, score=score)


def first_answer(
    little: Answerer[Output], messages: Sequence[Message], params: SamplingParams, score: str
) -> tuple[Output, float]:
    """The little model's answer and its score; of several choices the neediest counts."""
    output = little.chat(messages, with_logprobs(params))
    samples: Sequence[str] = ()
    if SCORES[score].num_samples:
        told = little.chat(messages, sample_params(params, SCORES[score].num_samples))
        samples = [choice.text for choice in told.outputs]
    return output, max(need(score, written(choice, samples)) for choice in output.outputs)


def written(choice: AnswerChoice, samples: Sequence[str]) -> Written:
    """What a score reads."""
    logprobs = [entry.logprob for entry in choice.logprobs or ()]
    return Written(text=choice.text, logprobs=logprobs, samples=samples)


def with_logprobs(params: SamplingParams) -> SamplingParams:
    """The same, telling the log-probability of each token."""
    return params if params.logprobs is not None else replace(params, logprobs=0)


def sample_params(params: SamplingParams, num_samples: int) -> SamplingParams:
    """Short samples of what could be answered as well."""
    most = SAMPLE_TOKENS if params.max_tokens is None else min(SAMPLE_TOKENS, params.max_tokens)
    return replace(
        params,
        n=num_samples,
        temperature=params.temperature or SAMPLE_TEMPERATURE,
        max_tokens=most,
        min_tokens=min(params.min_tokens, most),
        logprobs=None,
        prompt_logprobs=None,
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
    what is tested, the others test it. Raises InvalidRequestError for too few.
    """
    check_choice("score", score, SCORES)
    check_number("tuning_share", tuning_share, 0.0, 1.0, open_low=True, open_high=True)
    count = len(conversations)
    if count < 2:
        raise InvalidRequestError(f"{count} conversations", hint="give hundreds, as your users have them")
    tuning, testing = split(count, min(count - 1, max(1, round(tuning_share * count))), seed)
    for risk in risks:
        check_sample(len(testing), risk, delta)
    scores, losses = np.zeros(count), np.zeros(count)
    for number, messages in enumerate(conversations):
        output, scores[number] = first_answer(little, messages, params, score)
        better = _quality(quality, number, big.chat(messages, params)) - _quality(quality, number, output)
        losses[number] = max(0.0, better)
    path = path_of(scores[tuning])
    found = [certify(scores[testing], losses[testing], path, risk=risk, delta=delta) for risk in risks]
    calibration = ThresholdCalibration(
        scores=np.sort(scores[testing]), certified=tuple(entry for entry in found if entry is not None)
    )
    return CascadeCalibration(
        model=model,
        score=score,
        sampling=SamplingSettings.of(params),
        max_tokens=params.max_tokens,
        thresholds=calibration,
    )


def _quality(quality: Quality, number: int, output: Answered) -> float:
    value = quality(number, output.outputs[0].text)
    check_number("quality", value, 0.0, 1.0)
    return value
