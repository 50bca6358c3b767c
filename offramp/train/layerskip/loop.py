"""The training loop: resumable at every checkpoint, the same steps however often it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from offramp.core import Ids
from offramp.train.clock import Budget
from offramp.train.decoder import Batch, Decoder
from offramp.train.layerskip.batches import Example, make_batch, plan_epoch
from offramp.train.layerskip.loss import Leaving, early_exit_loss, step_vocabulary
from offramp.train.layerskip.recipe import Recipe, Settings
from offramp.train.layerskip.schedule import dropout_rates, exits_on, learning_rate, loss_weights
from offramp.train.layerskip.shards import split_batch
from offramp.train.say import Say
from offramp.train.state import SAVE_SECONDS, Progress, TrainingState, descend, save
from offramp.train.workers import Workers


@dataclass(frozen=True, slots=True)
class Course:
    """What is taught to whom."""

    decoder: Decoder
    examples: Sequence[Example]
    prefix: Sequence[int]
    vocab_ids: Ids  # that the exits know
    settings: Settings

    @property
    def recipe(self) -> Recipe:
        return self.settings.recipe


def train(course: Course, state: TrainingState, checkpoint: Path, say: Say, measured: Callable[[], str]) -> None:
    """Until the budget is spent. `measured` describes validation, and is asked at checkpoints."""
    recipe = course.recipe
    budget = Budget(steps=recipe.steps, minutes=recipe.minutes)
    progress = Progress(say)
    saved = state.clock.seconds
    with closing(Workers(recipe.workers or 1)) as workers:
        for indices in _batches(course, state.step):
            done = budget.progress(state.step, state.clock.seconds)
            if done >= 1:
                break
            batch = make_batch([course.examples[i] for i in indices], course.prefix)
            losses = _teach(course, state, batch, done, workers)
            progress.tell(state, done, losses, batch.num_rows)
            if state.clock.seconds - saved > SAVE_SECONDS:
                save(state, course.settings, checkpoint)
                saved = state.clock.seconds
                say(f"step {state.step}: {measured()}")
    save(state, course.settings, checkpoint)


def _teach(course: Course, state: TrainingState, batch: Batch, done: float, workers: Workers) -> dict[int, float]:
    """One step; its draws depend on the seed and the step's number alone. Returns the losses by exit."""
    recipe, config = course.recipe, course.decoder.config
    noise = np.random.default_rng((recipe.seed, state.step))
    vocabulary = step_vocabulary(course.vocab_ids, batch.target_ids, config.vocab_size, recipe.other_ids, noise)
    exits = exits_on(
        recipe.exits, config.num_layers, recipe.curriculum, period=recipe.period, step=state.step, progress=done
    )
    weights = loss_weights(exits, config.num_layers, recipe.exit_scale)
    by_layer = dict(zip([*exits, config.num_layers], weights, strict=True))
    rates = dropout_rates(config.num_layers, recipe.dropout)
    leaving = Leaving(recipe.leave_at, recipe.leaving)

    def part_loss(number: int, part: Batch) -> tuple[Tensor, dict[int, float]]:
        own = np.random.default_rng((recipe.seed, state.step, number))
        return early_exit_loss(course.decoder, part, vocabulary, by_layer, rates, own, leaving)

    parts = split_batch(batch, workers.count)
    gradients, losses = workers.gradients(parts, list(state.trained.values()), part_loss)
    descend(state, gradients, learning_rate(recipe.learning_rate, done))
    state.step += 1
    return losses


def _batches(course: Course, first: int) -> Iterator[list[int]]:
    """Batches of one epoch after another, from step `first` on."""
    lengths = [len(example) - len(course.prefix) for example in course.examples]
    epoch, passed = 0, 0
    while True:
        for batch in plan_epoch(lengths, course.recipe.batch_rows, course.recipe.seed, epoch):
            if passed >= first:
                yield batch
            passed += 1
        epoch += 1
