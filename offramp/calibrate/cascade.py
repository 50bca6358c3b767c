"""A calibration of a cascade: prompts and two models -> thresholds for shares of big calls, and certified ones.

1. The little model answers all prompts, telling log-probabilities; and writes samples, if the score looks at them.
2. The big model answers all prompts; an answer's loss is by how much the little one's is worse.
3. Tuning prompts teach the score, if it is a trained one, and choose thresholds; the others test those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from offramp.calibrate.answers import Tell, located
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.calibrate.sizes import check_enough, num_tuning
from offramp.calibrate.walk import Stage
from offramp.collaborate.cascade.calibration import BothRunning, CascadeCalibration
from offramp.collaborate.cascade.cascade import sample_params, with_logprobs, written
from offramp.collaborate.cascade.certify import CascadeRecipe, Judged, certified_cascade
from offramp.collaborate.cascade.scores import SCORES, Written
from offramp.core import SamplingParams
from offramp.draft import OFF
from offramp.llm.llm import LLM
from offramp.llm.loading import LoadedModel
from offramp.llm.output import RequestOutput
from offramp.llm.running_of import running_of
from offramp.llm.serving import Serving
from offramp.params import refused
from offramp.quality.words import is_one_of, rouge_l_of_texts, same_but_spaces

AT_ONCE = 16
"""Prompts that are answered together."""


@dataclass(frozen=True, slots=True, eq=False)
class Both:
    """One prompt as each of the models reads it."""

    little: CalibrationPrompt
    big: CalibrationPrompt


def paired(little: Sequence[CalibrationPrompt], big: Sequence[CalibrationPrompt]) -> list[Both]:
    """The lines that leave room for an answer in both models."""
    known = {prompt.where: prompt for prompt in big}
    return [Both(prompt, known[prompt.where]) for prompt in little if prompt.where in known]


def rouge_loss(little: str, big: str, references: Sequence[str]) -> float:
    """One minus ROUGE-L, over words, to the big model's answer; 0 where texts are equal, with or without words."""
    return 0.0 if same_but_spaces(little, big) else 1.0 - rouge_l_of_texts(little, big)


def exact_match_loss(little: str, big: str, references: Sequence[str]) -> float:
    """1 where the big model's text is one of the references and the little one's is not, white space aside; else 0."""
    return float(is_one_of(big, references) and not is_one_of(little, references))


TextLoss = Callable[[str, str, Sequence[str]], float]
LOSSES: Mapping[str, TextLoss] = {"rouge": rouge_loss, "exact-match": exact_match_loss}
"""What the little model's answer loses against the big one's; the default first."""


def loss_of(name: str) -> TextLoss:
    """The loss of that name. Raises InvalidRequestError, also for one that only answers of one model have."""
    if name not in LOSSES:
        raise refused("loss", name, f"one of {', '.join(LOSSES)}, where two models are compared by their answers")
    return LOSSES[name]


def calibrate_cascade(
    little: LoadedModel, big: LoadedModel, prompts: Sequence[Both], recipe: CascadeRecipe, loss: str, stage: Stage
) -> CascadeCalibration:
    """Raises OfframpError: for too few prompts before anybody answers them, else what goes wrong with a prompt."""
    measure = loss_of(loss)
    for risk in recipe.risks:
        check_enough(len(prompts), risk, recipe.delta)
    recipe.check_enough(len(prompts), num_tuning(len(prompts)))
    wrote = _written(little, [each.little for each in prompts], recipe, stage)
    tell = stage("answering with the big model")
    answers = _answers(big, [each.big for each in prompts], recipe.params, tell)
    judged = [
        Judged(mine, measure(mine.text, theirs.outputs[0].text, each.big.references))
        for each, mine, theirs in zip(prompts, wrote, answers, strict=True)
    ]
    return certified_cascade(
        judged,
        recipe,
        num_tuning=num_tuning(len(prompts)),
        model=little.source_hash,
        big_model=big.source_hash,
        running=BothRunning(**running_of(little), **{f"big_{name}": value for name, value in running_of(big).items()}),
    )


def _written(
    little: LoadedModel, prompts: Sequence[CalibrationPrompt], recipe: CascadeRecipe, stage: Stage
) -> list[Written]:
    tell = stage("answering with the little model")
    answers = _answers(little, prompts, with_logprobs(recipe.params), tell)
    samples: list[list[str]] = [[] for _ in prompts]
    if count := SCORES[recipe.score].num_samples:
        tell = stage("writing samples with the little model")
        told = _answers(little, prompts, recipe.params, tell, num_samples=count)
        samples = [[choice.text for choice in each.outputs] for each in told]
    return [written(each.outputs[0], texts) for each, texts in zip(answers, samples, strict=True)]


def _answers(
    loaded: LoadedModel,
    prompts: Sequence[CalibrationPrompt],
    params: SamplingParams,
    tell: Tell,
    *,
    num_samples: int = 0,
) -> list[RequestOutput]:
    """In order, each prompt with its own seed; or samples of what could be answered as well."""
    found: list[RequestOutput] = []
    with LLM.from_loaded(loaded, Serving(draft=OFF, max_num_seqs=AT_ONCE)) as llm:
        for first in range(0, len(prompts), AT_ONCE):
            some = prompts[first : first + AT_ONCE]
            seeded = [replace(params, seed=prompt.seed) for prompt in some]
            if num_samples:
                seeded = [sample_params(each, num_samples) for each in seeded]
            for prompt, output in zip(some, llm.generate([_ids(each) for each in some], seeded), strict=True):
                for choice in output.outputs:
                    if choice.error is not None:
                        raise located(choice.error, prompt)
                found.append(output)
            tell(len(found), len(prompts))
    return found


def _ids(prompt: CalibrationPrompt) -> list[int]:
    ids: list[int] = prompt.token_ids.tolist()
    return ids
