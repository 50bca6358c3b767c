"""A cascade's calibration over scripted models: who answers what is known, so shares and losses can be told by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.calibrate.answers import Tell
from offramp.calibrate.cascade import Both, calibrate_cascade, exact_match_loss, loss_of, paired, rouge_loss
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.collaborate.cascade.certify import CascadeRecipe
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, NumericError
from offramp.llm.loading import LoadedModel
from offramp.testing.models import chat_tokenizer, scripted_model
from tests.serve.piping import HASH, SURE, UNSURE, UNSURE_NEED, big_model, little_model

PROMPTS = 80
BIG_HASH = "cd" * 32
RECIPE = CascadeRecipe(
    score="mean", params=SamplingParams(temperature=0, max_tokens=8), risks=(0.2, 0.9), delta=0.1, seed=3
)


def asked(text: str, number: int, reference: str = "two") -> CalibrationPrompt:
    ids = np.array(chat_tokenizer().encode(text), np.int32)
    return CalibrationPrompt(ids, number, (reference,), f"line {number}")


def both(sure: int) -> list[Both]:
    """So many prompts of each kind; the little model answers "one" to all of them, the big one "two"."""
    texts = [SURE] * sure + [UNSURE] * (PROMPTS - sure)
    prompts = [asked(text, number, "one" if text == SURE else "two") for number, text in enumerate(texts)]
    return paired(prompts, prompts)


class Stages:
    """Notes what was begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def __call__(self, text: str) -> Tell:
        self.begun.append(text)
        return lambda done, total: None


def big() -> LoadedModel:
    return replace(big_model(), source_hash=BIG_HASH)


def test_only_lines_that_fit_both_are_asked() -> None:
    one, two, three = (asked("hello", number) for number in range(3))
    assert [each.little.where for each in paired([one, two], [two, three])] == ["line 1"]


def test_losses_by_hand() -> None:
    assert rouge_loss("a b", "a b", ()) == 0.0
    assert rouge_loss("a c", "a b", ()) == 0.5
    assert rouge_loss("", "", ()) == 0.0
    assert rouge_loss("?!", "?!\n", ()) == 0.0, "no words, and the same"
    assert rouge_loss("?!", "...", ()) == 1.0
    assert rouge_loss("", "a", ()) == 1.0
    assert rouge_loss("A, b.", "a b", ()) == 0.0
    assert exact_match_loss("x", " right  one\n", ("right one",)) == 1.0
    assert exact_match_loss("right one", "x", ("right one",)) == 0.0
    assert exact_match_loss("x", "y", ("right one",)) == 0.0
    with pytest.raises(InvalidRequestError, match="loss='tokens'"):
        loss_of("tokens")


def test_a_threshold_between_the_sure_and_the_unsure_is_found() -> None:
    """By exact match the little model is wrong exactly where it is unsure, for half of the prompts."""
    stages = Stages()
    kept = calibrate_cascade(little_model(), big(), both(PROMPTS // 2), RECIPE, "exact-match", stages)
    careful = kept.thresholds.for_risk(0.2)
    assert 0 < careful.threshold <= UNSURE_NEED + 1e-3
    assert careful.mean_loss == 0.0
    assert 0.35 < careful.big_share < 0.65
    assert kept.thresholds.for_risk(0.9).threshold == 1.0, "half of the answers may be wrong"
    assert len(kept.thresholds.scores) == careful.num_prompts == PROMPTS - PROMPTS // 4
    assert (kept.model, kept.big_model, kept.max_tokens) == (HASH, BIG_HASH, 8)
    assert stages.begun == ["answering with the little model", "answering with the big model"]


@pytest.mark.parametrize("score", ["trained", "trained-agreement"])
def test_a_trained_score_tells_them_apart_too(score: str) -> None:
    stages = Stages()
    recipe = replace(RECIPE, score=score)
    kept = calibrate_cascade(little_model(), big(), both(PROMPTS // 2), recipe, "exact-match", stages)
    assert kept.scorer is not None
    careful = kept.thresholds.for_risk(0.2)
    assert careful.mean_loss < 0.1
    assert 0.35 < careful.big_share < 0.65
    assert ("writing samples with the little model" in stages.begun) == (score == "trained-agreement")


def test_where_answers_differ_everywhere_the_big_model_is_asked_always() -> None:
    """By ROUGE-L "one" is entirely unlike "two", sure or not."""
    recipe = replace(RECIPE, risks=(0.2,))
    [entry] = calibrate_cascade(little_model(), big(), both(PROMPTS), recipe, "rouge", Stages()).thresholds.certified
    assert (entry.big_share, entry.mean_loss) == (1.0, 0.0)


def test_too_few_prompts_are_refused_before_anybody_answers() -> None:
    stages = Stages()
    for count, risks, message in ((0, (), "0 conversations"), (20, (0.05,), "20 prompts are too few")):
        with pytest.raises(InvalidRequestError, match=message):
            calibrate_cascade(
                little_model(), big(), both(PROMPTS)[:count], replace(RECIPE, risks=risks), "rouge", stages
            )
    assert stages.begun == []


def test_one_class_teaches_nothing() -> None:
    with pytest.raises(InvalidRequestError, match="which all lose 0"):
        calibrate_cascade(
            little_model(), big(), both(PROMPTS), replace(RECIPE, score="trained"), "exact-match", Stages()
        )


def test_a_model_that_fails_names_the_line() -> None:
    broken = scripted_model(lambda history, depth: np.full(chat_tokenizer().vocab_size, np.nan, np.float32))
    with pytest.raises(NumericError, match="line 0"):
        calibrate_cascade(broken, big(), both(PROMPTS), RECIPE, "rouge", Stages())
