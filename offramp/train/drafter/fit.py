"""The training loop of a side layer: resumable at every checkpoint, the same steps however often it was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from offramp.core import Ids
from offramp.train.clock import Budget
from offramp.train.drafter.batches import Packed, pack_texts, split_texts
from offramp.train.drafter.recipe import Recipe
from offramp.train.drafter.side import SideNet
from offramp.train.drafter.states import States, Text
from offramp.train.drafter.unroll import unrolled_loss
from offramp.train.drafter.validation import accepted_rates, line
from offramp.train.exits.training import Training
from offramp.train.layerskip.batches import plan_epoch
from offramp.train.layerskip.schedule import learning_rate
from offramp.train.state import SAVE_SECONDS, Progress, TrainingState, begin, descend, save
from offramp.train.workers import Workers

CHECKPOINT = "checkpoint.pt"
QUICK = 48
"""Held-out texts that are measured along the way."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is learned from, and what is kept aside."""

    trained: Sequence[Text]
    held_out: Sequence[Text]
    states: States
    vocab_ids: Ids


def fit(training: Training[Recipe], net: SideNet, course: Course) -> TrainingState:
    """Train the net until the time is spent, from the checkpoint in the work folder if there is one."""
    recipe, work = training.recipe, training.work
    checkpoint = work.path / CHECKPOINT
    state = begin(net.trained, recipe, checkpoint, training.clock, norm_rate=1.0)
    if "fit_from" not in work.state:
        work.note(fit_from=training.clock.seconds)
    from_seconds = work.state["fit_from"]
    minutes = None if recipe.steps is not None else max(0.01, recipe.minutes - from_seconds / 60)
    budget = Budget(steps=recipe.steps, minutes=minutes)
    progress = Progress(training.say, "place")
    saved = state.clock.seconds
    with closing(Workers(recipe.workers or training.clock.threads)) as workers:
        for texts in _batches(course.trained, recipe, state.step):
            done = budget.progress(state.step, state.clock.seconds - from_seconds)
            if done >= 1:
                break
            parts = [pack_texts(part, course.states, course.vocab_ids) for part in split_texts(texts, workers.count)]
            losses = _teach(net, state, parts, recipe, done, workers)
            progress.tell(state, done, losses, sum(len(part.tokens) for part in parts))
            if state.clock.seconds - saved > SAVE_SECONDS:
                saved = state.clock.seconds
                _keep(training, state, net, course, checkpoint)
    _keep(training, state, net, course, checkpoint)
    return state


def _teach(
    net: SideNet, state: TrainingState, parts: Sequence[Packed], recipe: Recipe, done: float, workers: Workers
) -> dict[int, float]:
    """One step; returns the losses by draft token."""
    w = net.casted()

    def part_loss(number: int, part: Packed) -> tuple[Tensor, dict[int, float]]:
        return unrolled_loss(net, w, part, recipe.unrolled, recipe.decay)

    gradients, losses = workers.gradients(parts, list(w.values()), part_loss)
    descend(state, [gradient.float() for gradient in gradients], learning_rate(recipe.learning_rate, done))
    state.step += 1
    return losses


def _keep(training: Training[Recipe], state: TrainingState, net: SideNet, course: Course, checkpoint: Path) -> None:
    """A checkpoint, and one point more of the curve."""
    save(state, training.recipe, checkpoint)
    rates, _ = accepted_rates(net, course.held_out[:QUICK], course.states, course.vocab_ids, training.recipe.unrolled)
    point = {"step": state.step, "minutes": round(state.clock.seconds / 60, 1), "rates": [round(r, 4) for r in rates]}
    curve = [each for each in training.work.state.get("curve", []) if each["step"] < state.step]
    training.work.note(curve=[*curve, point], seconds=state.clock.seconds)
    training.say(f"step {state.step}: {line(rates)}")


def _batches(texts: Sequence[Text], recipe: Recipe, first: int) -> Iterator[list[Text]]:
    """Batches of one epoch after another, from step `first` on."""
    lengths = [text.num_rows for text in texts]
    epoch, passed = 0, 0
    while True:
        for batch in plan_epoch(lengths, recipe.batch_rows, recipe.seed, epoch):
            if passed >= first:
                yield [texts[i] for i in batch]
            passed += 1
        epoch += 1
