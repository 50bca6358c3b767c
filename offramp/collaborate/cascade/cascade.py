"""Two models as one, from Python: the little one answers, and where its score reaches a threshold the big one does.

cascade = Cascade(LLM("small"), LLM("big"), score="mean", threshold=0.4)
answer = cascade.chat([{"role": "user", "content": "What is gravity?"}], SamplingParams(temperature=0))
print(answer.answered_by, answer.output.outputs[0].text)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

from offramp.collaborate.cascade.scorer import Scorer
from offramp.collaborate.cascade.scores import SAMPLE_TEMPERATURE, SAMPLE_TOKENS, SCORES, Written, need
from offramp.collaborate.threshold import calls_big, check_threshold
from offramp.core import SamplingParams, TokenLogprobs
from offramp.errors import InvalidRequestError
from offramp.params import check_choice, shown

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

    def __init__(
        self,
        little: Answerer[Output],
        big: Answerer[Output],
        *,
        score: str,
        threshold: float,
        scorer: Scorer | None = None,
    ) -> None:
        """`threshold` 0 always asks the big model, 1 never; `scorer` is a calibration's, for a trained score."""
        check_choice("score", score, SCORES)
        check_threshold(threshold)
        if SCORES[score].trained != (scorer is not None):
            hint = "give the calibration's scorer with its score, and with no other"
            raise InvalidRequestError(f"score={shown(score)}, scorer={shown(scorer)}", hint=hint, param="scorer")
        self._little = little
        self._big = big
        self._score = score
        self._scorer = scorer
        self._threshold = threshold
        self.num_calls: dict[Who, int] = {"little": 0, "big": 0}

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> CascadeAnswer[Output]:
        """The answer of one of the two."""
        params = params or SamplingParams()
        output, choices = first_answer(self._little, messages, params, self._score)
        score = neediest(self._score, choices, self._scorer)
        who: Who = "little"
        if calls_big(score, self._threshold):
            output, who = self._big.chat(messages, params), "big"
        self.num_calls[who] += 1
        return CascadeAnswer(output=output, answered_by=who, score=score)


def first_answer(
    little: Answerer[Output], messages: Sequence[Message], params: SamplingParams, score: str
) -> tuple[Output, list[Written]]:
    """The little model's answer, and what a score reads of its choices."""
    output = little.chat(messages, with_logprobs(params))
    samples: Sequence[str] = ()
    if SCORES[score].num_samples:
        told = little.chat(messages, sample_params(params, SCORES[score].num_samples))
        samples = [choice.text for choice in told.outputs]
    return output, [written(choice, samples) for choice in output.outputs]


def neediest(score: str, choices: Iterable[Written], scorer: Scorer | None) -> float:
    """The score of an answer of several choices."""
    return max(need(score, each, scorer) for each in choices)


def written(choice: AnswerChoice, samples: Sequence[str]) -> Written:
    """What a score reads."""
    logprobs = [entry.logprob for entry in choice.logprobs or ()]
    return Written(text=choice.text, logprobs=logprobs, samples=samples)


def with_logprobs(params: SamplingParams) -> SamplingParams:
    """The same, telling the log-probability of each token."""
    return params if params.logprobs is not None else replace(params, logprobs=0)


def sample_params(params: SamplingParams, num_samples: int) -> SamplingParams:
    """Short samples of what could be answered as well. By the answer's own seed the first would repeat it."""
    most = SAMPLE_TOKENS if params.max_tokens is None else min(SAMPLE_TOKENS, params.max_tokens)
    return replace(
        params,
        n=num_samples,
        seed=None if params.seed is None else params.seed ^ 1,
        temperature=params.temperature or SAMPLE_TEMPERATURE,
        max_tokens=most,
        min_tokens=min(params.min_tokens, most),
        logprobs=None,
        prompt_logprobs=None,
    )
