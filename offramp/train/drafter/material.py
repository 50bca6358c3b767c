"""What a drafter is taught by: the target's own answers, its hidden states along them, and the tokens that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.llm.llm import LLM
from offramp.llm.serving import Serving
from offramp.train.drafter.recipe import ANSWER_SHARE, DrafterRecipe
from offramp.train.drafter.states import States, Text, capture, place_texts, row_bytes
from offramp.train.exits.answers import AT_ONCE, Answer, read_answers, write_answers
from offramp.train.exits.targets import head_vocabulary
from offramp.train.exits.training import Training
from offramp.train.pairs import held_out

R = TypeVar("R", bound=DrafterRecipe)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Where they come from, and which of them are kept aside."""

    file: Path
    texts: Sequence[str]

    def split(self, texts: Sequence[Text], recipe: DrafterRecipe) -> tuple[list[Text], list[Text]]:
        """Those to learn from, and those kept for measuring."""
        kept = [t for t in texts if held_out(self.texts[t.number], recipe.held_out, recipe.seed)]
        taught = [t for t in texts if not held_out(self.texts[t.number], recipe.held_out, recipe.seed)]
        if not kept or not taught:
            raise InvalidRequestError(
                f"{len(texts)} usable prompts are too few to keep {recipe.held_out:.0%} of them for measuring",
                hint="give more prompts, or more --minutes",
            )
        return taught, kept


@dataclass(frozen=True, slots=True)
class Material:
    """Texts to learn from and texts kept aside, with the states that lie in one file for both."""

    taught: Sequence[Text]
    kept: Sequence[Text]
    states: States  # [rows, taps, hidden]
    vocab_ids: Ids  # the most frequent of the answers that are learned from, rising
    num_answers: int

    @property
    def num_tokens(self) -> int:
        """That can be learned, each counted once."""
        return sum(text.num_drafts for text in self.taught)


def gather(training: Training[R], prompts: Prompts, taps: Sequence[int]) -> Material:
    """From what is in the work folder on. Raises InvalidRequestError where answers are no use."""
    recipe, loaded = training.recipe, training.loaded
    answers = _answers(training, prompts.texts)
    most_rows = recipe.disk // row_bytes(len(taps), loaded.config.hidden_size)
    texts = place_texts(answers, recipe.context, most_rows)
    try:
        taught, kept = prompts.split(texts, recipe)
    except InvalidRequestError:
        training.work.discard()  # the same prompts would be answered in the same way
        raise
    if len(texts) < len(answers):
        told = f"{len(texts)} of {len(answers)} answers are used: the others are short, or exceed --disk"
        training.tell(told, always=True)
    numbers = {text.number for text in taught}
    vocab_ids = head_vocabulary((a for a in answers if a.number in numbers), recipe.coverage, recipe.vocabulary)
    states = capture(
        loaded.executor,
        answers,
        texts,
        taps,
        training.work,
        lambda done: training.tell(f"hidden states of {done} of {len(texts)} answers"),
    )
    return Material(taught, kept, states, vocab_ids, len(answers))


def is_drawn(prompt: str, recipe: DrafterRecipe) -> bool:
    """Whether a prompt's answer is drawn; depends on it and the seed alone. Those kept for measuring never are."""
    kept = recipe.held_out
    share = kept + (1 - kept) * recipe.drawn
    return not held_out(prompt, kept, recipe.seed) and held_out(prompt, share, recipe.seed)


def _answers(training: Training[R], prompts: Sequence[str]) -> list[Answer]:
    """Those of the work folder, after as many more were written as there is time for."""
    recipe, work = training.recipe, training.work
    if not work.state.get("answered"):

        def may_go_on(done: int) -> bool:
            training.tell(f"answered {done} of {len(prompts)} prompts")
            return done == 0 or training.used < ANSWER_SHARE

        with LLM.from_loaded(training.loaded, Serving(draft="off", max_num_seqs=AT_ONCE)) as llm:
            write_answers(
                llm,
                prompts,
                work.answers,
                max_tokens=recipe.max_tokens,
                temperature=recipe.temperature,
                seed=recipe.seed,
                may_go_on=may_go_on,
                say=training.say,
                at_once=4 * AT_ONCE,  # so that few sequences seldom run alone
                drawn=lambda prompt: is_drawn(prompt, recipe),
            )
        work.note(answered=True)
    return read_answers(work.answers)
