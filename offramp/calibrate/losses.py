"""How much worse an answer is than that of plain decoding at full depth: one loss a prompt, in [0, 1].

`tokens` compares with what plain decoding would draw at the same place, after the same text; `rouge` and `exact-match`
compare whole answers, in which one early difference may change all that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from offramp.calibrate.answers import Answer, Rig, Tell
from offramp.calibrate.plain import plain_tokens
from offramp.exits.calibration import Losses
from offramp.model.tokenizer import Tokenizer
from offramp.params import refused
from offramp.quality.rouge import rouge_l
from offramp.quality.words import is_one_of

Loss = Callable[[Sequence[Answer], Tell], Losses]
"""Answers under a policy, in the order of the prompts -> the loss of each."""

FullAnswers = Callable[[], Sequence[Answer]]
"""Those of full depth to the same prompts, made when first asked for."""


def token_loss(rig: Rig, full: FullAnswers, tokenizer: Tokenizer) -> Loss:
    """Share of an answer's tokens that differ from what plain decoding would draw there."""

    def losses(answers: Sequence[Answer], tell: Tell) -> Losses:
        found = np.zeros(len(answers))
        others = {n: rig.first_other(answer) for n, answer in enumerate(answers)}
        firsts = {n: first for n, first in others.items() if first is not None}  # the rest is plain decoding's own
        drawn = plain_tokens(rig, [answers[n] for n in firsts], list(firsts.values()), tell)
        for (n, first), tokens in zip(firsts.items(), drawn, strict=True):
            found[n] = np.count_nonzero(tokens != answers[n].token_ids[first:]) / len(answers[n])
        return found

    return losses


def rouge_loss(rig: Rig, full: FullAnswers, tokenizer: Tokenizer) -> Loss:
    """One minus ROUGE-L, over token ids without end tokens, to the answer of full depth."""

    def losses(answers: Sequence[Answer], tell: Tell) -> Losses:
        pairs = zip(_contents(rig, full()), _contents(rig, answers), strict=True)
        return np.array([1.0 - rouge_l(whole, early) for whole, early in pairs])

    return losses


def exact_match_loss(rig: Rig, full: FullAnswers, tokenizer: Tokenizer) -> Loss:
    """1 where full depth's text is one of the prompt's references and this one is not, white space aside; else 0."""

    def right(answers: Sequence[Answer]) -> Losses:
        pairs = zip(_contents(rig, answers), answers, strict=True)
        texts = [(tokenizer.decode(content), answer.prompt.references) for content, answer in pairs]
        return np.array([float(is_one_of(text, references)) for text, references in texts])

    def losses(answers: Sequence[Answer], tell: Tell) -> Losses:
        return np.maximum(0.0, right(full()) - right(answers))

    return losses


MakeLoss = Callable[[Rig, FullAnswers, Tokenizer], Loss]

LOSSES: Mapping[str, MakeLoss] = {"tokens": token_loss, "rouge": rouge_loss, "exact-match": exact_match_loss}
SCORES = ("exact-match",)
"""Losses that take references."""


def loss_of(name: str) -> MakeLoss:
    """The loss of that name; an unknown one is refused with the known ones."""
    if name not in LOSSES:
        raise refused("loss", name, f"one of {', '.join(LOSSES)}")
    return LOSSES[name]


def _contents(rig: Rig, answers: Sequence[Answer]) -> list[list[int]]:
    """Token ids without those that end a text."""
    return [[token for token in answer.token_ids.tolist() if token not in rig.eos_token_ids] for answer in answers]
