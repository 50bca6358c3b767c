"""Two models of any vocabularies that guide each other's beam search.

What: beams of the first are written down in the second's tokens, and its beam search loses `strength` for each place at
which a hypothesis differs from the nearest of them; then the first searches under the second's beams, and so on.
When it helps: two models of about equal quality with different strengths, on texts with one right answer, such as
translation.
Cost: one beam search for each of `1 + rounds` turns: for quality, not speed.
Exactness: none is claimed; the answer is the best of the last turn's beams.
Source: Twist decoding (arXiv 2205.09273).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offramp.collaborate.ensemble.beam import ExecutorStepper, Guide, Hypothesis, NoGuide, Scores, beam_search
from offramp.collaborate.ensemble.ensemble import Member
from offramp.core import Ids
from offramp.params import check_int, check_number, refused

MOST_WIDTH = 64
MOST_ROUNDS = 16
MOST_STRENGTH = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class TwistOutput:
    """The best text of the last turn, and the beams of all turns, as texts."""

    text: str
    turns: tuple[tuple[str, ...], ...]


class NearestGuide:
    """Takes off `strength` for each place at which a hypothesis differs from the nearest of some texts (Hamming).

    Past a text's end every token differs from it.
    """

    def __init__(self, texts: Sequence[Sequence[int]], strength: float) -> None:
        self._texts = [tuple(text) for text in texts]
        self._strength = strength

    def penalties(self, token_ids: tuple[int, ...], vocab_size: int) -> Scores:
        place = len(token_ids)
        before = [_distance(token_ids, text) for text in self._texts]
        losses = np.full(vocab_size, min(before) + 1.0)
        for text, distance in zip(self._texts, before, strict=True):
            if place < len(text) and text[place] < vocab_size:
                losses[text[place]] = min(losses[text[place]], distance)
        return self._strength * losses


def _distance(token_ids: tuple[int, ...], text: tuple[int, ...]) -> int:
    """Places of the hypothesis at which the text has another token, or none."""
    return sum(place >= len(text) or text[place] != token for place, token in enumerate(token_ids))


class Twist:
    """Not for several threads at once; its models serve nobody else meanwhile."""

    def __init__(
        self,
        first: Member,
        second: Member,
        *,
        width: int = 4,
        rounds: int = 3,
        first_strength: float = 0.2,
        second_strength: float = 1.0,
    ) -> None:
        """`rounds` are the turns after the first; each model has the strength by which it follows the other."""
        check_int("width", width, 1, MOST_WIDTH)
        check_int("rounds", rounds, 1, MOST_ROUNDS)
        check_number("first_strength", first_strength, 0.0, MOST_STRENGTH)
        check_number("second_strength", second_strength, 0.0, MOST_STRENGTH)
        if first.executor is second.executor:
            raise refused("second", second.name, "a model of its own, loaded apart")
        self._members = (first, second)
        self._strengths = (first_strength, second_strength)
        self._width = width
        self._rounds = rounds

    def generate(self, prompts: tuple[str, str], max_tokens: int = 64) -> TwistOutput:
        """Each model has a prompt of its own, in its own form (a chat template's text, say)."""
        check_int("max_tokens", max_tokens, 1)
        if isinstance(prompts, str) or len(prompts) != len(self._members):
            raise refused("prompts", prompts, "two texts, one for each model")
        encoded = [self._encoded(place, prompt, max_tokens) for place, prompt in enumerate(prompts)]
        turns: list[tuple[str, ...]] = []
        for turn in range(1 + self._rounds):
            place = turn % 2
            turns.append(self._search(place, encoded[place], turns[-1] if turns else (), max_tokens))
        return TwistOutput(text=turns[-1][0], turns=tuple(turns))

    def _encoded(self, place: int, prompt: str, max_tokens: int) -> Ids:
        member = self._members[place]
        ids = member.tokenizer.encode(prompt)
        if not ids or len(ids) + max_tokens > member.max_context:
            most = member.max_context - max_tokens
            raise refused("prompts", f"{len(ids)} tokens", f"1 to {most} tokens, {max_tokens} being answered")
        return np.array(ids, dtype=np.int32)

    def _search(self, place: int, prompt: Ids, other: Sequence[str], max_tokens: int) -> tuple[str, ...]:
        """One turn's texts, best first."""
        member = self._members[place]
        tokenizer = member.tokenizer
        guide: Guide = NoGuide()
        if other:
            encode = tokenizer.encoder_within()
            end = min(member.eos_token_ids, default=None)
            texts = [[*encode(text), *([] if end is None else [end])] for text in other]
            guide = NearestGuide(texts, self._strengths[place])
        found: list[Hypothesis] = beam_search(
            ExecutorStepper(member.executor, self._width, tokenizer.vocab_size),
            prompt,
            width=self._width,
            max_tokens=max_tokens,
            end_ids=member.eos_token_ids,
            guide=guide,
        )
        return tuple(tokenizer.decode(each.token_ids) for each in found)
