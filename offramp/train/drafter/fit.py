"""The training loop of every drafter: resumable at every checkpoint, the same steps however often it was cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from offramp.train.clock import Budget
from offramp.train.drafter.best import Best, BestWeights
from offramp.train.drafter.recipe import DrafterRecipe
from offramp.train.drafter.states import Text
from offramp.train.exits.training import Training
from offramp.train.layerskip.batches import plan_epoch
from offramp.train.layerskip.schedule import learning_rate
from offramp.train.state import SAVE_SECONDS, Progress, TrainingState, begin, descend, save
from offramp.train.workers import Part, PartLoss, Workers

CHECKPOINT = "checkpoint.pt"
MEASURED = 20
"""How often drafts are measured on the way, at equal parts of it: where is no matter of the machine under --steps."""

P = TypeVar("P", bound=Part)
R = TypeVar("R", bound=DrafterRecipe)


@dataclass(frozen=True, slots=True)
class Lesson(Generic[P]):
    """A batch to learn from, in parts that can be computed side by side."""

    parts: Sequence[P]
    leaves: Sequence[Tensor]  # to take gradients by, in the order of what is trained
    loss: PartLoss[P]


class Pupil(Protocol[P]):
    """A drafter that is being trained."""

    @property
    def trained(self) -> dict[str, Tensor]:
        """By name, f32; changed in place."""
        ...

    @property
    def norm_rate(self) -> float:
        """The learning rate of norms' weights as a part of that of all others."""
        ...

    def lesson(self, texts: Sequence[Text], step: int, num_parts: int) -> Lesson[P]:
        """What these texts teach, in at most so many parts; draws depend on the seed and the step alone."""
        ...

    def quick_rates(self) -> list[float]:
        """For the 1st, 2nd, ... token of a draft how often it stands, on some texts that nothing is learned from."""
        ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """How far training came, and whose weights are kept."""

    steps: int
    best: Best


def fit(training: Training[R], pupil: Pupil[P], texts: Sequence[Text]) -> Fitted:
    """Train until the time is spent, from the checkpoint in the work folder if there is one; the best weights stay."""
    recipe, work = training.recipe, training.work
    checkpoint = work.path / CHECKPOINT
    state = begin(pupil.trained, recipe, checkpoint, training.clock, norm_rate=pupil.norm_rate)
    if "fit_from" not in work.state:
        work.note(fit_from=training.clock.seconds)
    from_seconds = work.state["fit_from"]
    minutes = None if recipe.steps is not None else max(0.01, recipe.minutes - from_seconds / 60)
    budget = Budget(steps=recipe.steps, minutes=minutes)
    best = BestWeights(state, work, pupil.quick_rates, training.say)
    progress = Progress(training.say, "place")
    saved, num_learned = state.clock.seconds, 0
    with closing(Workers(recipe.workers or training.clock.threads)) as workers:
        for batch, num_learned in _batches(texts, recipe, state.step):
            done = budget.progress(state.step, state.clock.seconds - from_seconds)
            if done >= 1:
                break
            losses = _teach(pupil, state, batch, learning_rate(recipe.learning_rate, done), workers)
            progress.tell(state, done, losses, sum(text.num_rows for text in batch))
            further = budget.progress(state.step, state.clock.seconds - from_seconds)
            if int(MEASURED * further) > int(MEASURED * done):
                best.measure(num_learned + _num_drafts(batch))
            if state.clock.seconds - saved > SAVE_SECONDS:
                saved = state.clock.seconds
                save(state, recipe, checkpoint)
    save(state, recipe, checkpoint)
    if not best.measured:
        best.measure(num_learned)
    return Fitted(state.step, best.take())


def _teach(
    pupil: Pupil[P], state: TrainingState, batch: Sequence[Text], rate: float, workers: Workers
) -> dict[int, float]:
    """One step; returns the losses by draft token."""
    lesson = pupil.lesson(batch, state.step, workers.count)
    gradients, losses = workers.gradients(lesson.parts, lesson.leaves, lesson.loss)
    descend(state, [gradient.float() for gradient in gradients], rate)
    state.step += 1
    return losses


def _batches(texts: Sequence[Text], recipe: DrafterRecipe, first: int) -> Iterator[tuple[list[Text], int]]:
    """Batches of one epoch after another, from step `first` on, each with how many tokens are learned before it."""
    lengths = [text.num_rows for text in texts]
    epoch, step, num_learned = 0, 0, 0
    while True:
        for indices in plan_epoch(lengths, recipe.batch_rows, recipe.seed, epoch):
            batch = [texts[i] for i in indices]
            if step >= first:
                yield batch, num_learned
            num_learned += _num_drafts(batch)
            step += 1
        epoch += 1


def _num_drafts(texts: Sequence[Text]) -> int:
    return sum(text.num_drafts for text in texts)
