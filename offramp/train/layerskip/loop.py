"""The training loop: resumable at every checkpoint, the same steps however often it was interrupted."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from offramp.core import Ids
from offramp.errors import CorruptModelError, NumericError
from offramp.train.clock import Budget, ComputeClock
from offramp.train.decoder import Batch, Decoder
from offramp.train.layerskip.batches import Example, make_batch, plan_epoch
from offramp.train.layerskip.loss import Leaving, early_exit_loss, step_vocabulary
from offramp.train.layerskip.recipe import Recipe
from offramp.train.layerskip.schedule import dropout_rates, exits_on, learning_rate, loss_weights
from offramp.train.layerskip.shards import Workers, split_batch
from offramp.train.say import Say
from offramp.whole_file import whole_file

SAVE_SECONDS = 180.0  # of computing between checkpoints
SHOW_SECONDS = 15.0  # of computing between progress lines
NORM_RATE = 0.1
"""Learning rate of norm weights, as a part of that of the matrices' changes: they start where they should be."""


@dataclass(slots=True)
class TrainingState:
    """Where training stands: what is trained, by name, and how far it has come."""

    trained: dict[str, Tensor]
    optimizer: torch.optim.AdamW
    clock: ComputeClock
    step: int = 0


def begin(trained: dict[str, Tensor], recipe: Recipe, checkpoint: Path) -> TrainingState:
    """From the checkpoint if there is one, else from the start."""
    norms = [tensor for name, tensor in trained.items() if name.endswith("norm")]
    rest = [tensor for name, tensor in trained.items() if not name.endswith("norm")]
    groups = [{"params": rest, "scale": 1.0}, {"params": norms, "scale": NORM_RATE}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    state = TrainingState(trained, optimizer, ComputeClock(torch.get_num_threads()))
    if checkpoint.exists():
        _resume(state, recipe, checkpoint)
    return state


@dataclass(frozen=True, slots=True)
class Course:
    """What is taught to whom."""

    decoder: Decoder
    examples: Sequence[Example]
    prefix: Sequence[int]
    vocab_ids: Ids  # that the exits know
    recipe: Recipe


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
                save(state, recipe, checkpoint)
                saved = state.clock.seconds
                say(f"step {state.step}: {measured()}")
    save(state, recipe, checkpoint)


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
    _descend(state, gradients, learning_rate(recipe.learning_rate, done))
    state.step += 1
    return losses


def save(state: TrainingState, recipe: Recipe, checkpoint: Path) -> None:
    """Everything that resuming needs, in one file, whole or not at all."""
    content = io.BytesIO()
    values = {
        "recipe": recipe.as_json(),
        "step": state.step,
        "seconds": state.clock.seconds,
        "trained": {name: tensor.detach() for name, tensor in state.trained.items()},
        "optimizer": state.optimizer.state_dict(),
    }
    torch.save(values, content)
    with whole_file(checkpoint) as file:
        file.write(content.getbuffer())


def _resume(state: TrainingState, recipe: Recipe, checkpoint: Path) -> None:
    values = torch.load(checkpoint, weights_only=True)
    ends = {"steps", "minutes"}  # may be raised to train on
    before = {name: value for name, value in values["recipe"].items() if name not in ends}
    now = {name: value for name, value in recipe.as_json().items() if name not in ends}
    if before != now or values["trained"].keys() != state.trained.keys():
        changed = sorted(name for name in now if now[name] != before.get(name))
        raise CorruptModelError(
            f"{checkpoint} belongs to another training: {', '.join(changed) or 'other tensors'} differ",
            hint="name another work folder, or delete this one to start over",
        )
    with torch.no_grad():
        for name, tensor in state.trained.items():
            tensor.copy_(values["trained"][name])
    state.optimizer.load_state_dict(values["optimizer"])
    state.step = values["step"]
    state.clock.before = values["seconds"]


def _descend(state: TrainingState, gradients: Sequence[Tensor], rate: float) -> None:
    for group in state.optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    for tensor, gradient in zip(state.trained.values(), gradients, strict=True):
        tensor.grad = gradient
    norm = torch.nn.utils.clip_grad_norm_(state.trained.values(), 1.0)
    if not torch.isfinite(norm):
        raise NumericError(f"the gradient is not finite at step {state.step}", hint="lower --learning-rate")
    state.optimizer.step()
    state.optimizer.zero_grad()


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


class Progress:
    """A line now and then about how training goes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._shown = 0.0
        self._rows = 0
        self._losses: dict[int, list[float]] = {}

    def tell(self, state: TrainingState, done: float, losses: dict[int, float], num_rows: int) -> None:
        """One step more."""
        self._rows += num_rows
        for layer, loss in losses.items():
            self._losses.setdefault(layer, []).append(loss)
        seconds = state.clock.seconds
        if self._shown == 0.0:
            self._shown, self._rows = seconds, 0
        elif seconds - self._shown > SHOW_SECONDS:
            means = ", ".join(f"{layer}: {np.mean(some):.2f}" for layer, some in sorted(self._losses.items()))
            speed = self._rows / (seconds - self._shown)
            self._say(f"step {state.step}, {done:.1%}, {speed:.0f} tokens/s, loss by layers {means}")
            self._shown, self._rows = seconds, 0
            self._losses.clear()
