"""What every training loop shares: where it stands, how it is kept and resumed, how it tells of its progress."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from offramp.errors import CorruptModelError, NumericError
from offramp.train.clock import ComputeClock
from offramp.train.say import Say
from offramp.whole_file import whole_file

SAVE_SECONDS = 180.0  # of computing between checkpoints
SHOW_SECONDS = 15.0  # of computing between progress lines


class Settings(Protocol):
    """What is kept of a recipe with a checkpoint, so that another training's is refused."""

    def as_json(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class TrainingState:
    """Where training stands: what is trained, by name, and how far it has come."""

    trained: dict[str, Tensor]
    optimizer: torch.optim.AdamW
    clock: ComputeClock
    step: int = 0


def begin(
    trained: dict[str, Tensor], settings: Settings, checkpoint: Path, clock: ComputeClock, *, norm_rate: float
) -> TrainingState:
    """From the checkpoint if there is one, else from the start.

    `norm_rate` is the learning rate of norms' weights as a part of that of all others.
    """
    norms = [tensor for name, tensor in trained.items() if name.endswith("norm")]
    rest = [tensor for name, tensor in trained.items() if not name.endswith("norm")]
    groups = [{"params": rest, "scale": 1.0}, {"params": norms, "scale": norm_rate}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0, fused=True)  # a fifth of the time
    state = TrainingState(trained, optimizer, clock)
    if checkpoint.exists():
        _resume(state, settings, checkpoint)
    return state


def save(state: TrainingState, settings: Settings, checkpoint: Path) -> None:
    """Everything that resuming needs, in one file, whole or not at all."""
    content = io.BytesIO()
    values = {
        "recipe": settings.as_json(),
        "step": state.step,
        "seconds": state.clock.seconds,
        "trained": {name: tensor.detach() for name, tensor in state.trained.items()},
        "optimizer": state.optimizer.state_dict(),
    }
    torch.save(values, content)
    with whole_file(checkpoint) as file:
        file.write(content.getbuffer())


def _resume(state: TrainingState, settings: Settings, checkpoint: Path) -> None:
    values = torch.load(checkpoint, weights_only=True)
    ends = {"steps", "minutes"}  # may be raised to train on
    before = {name: value for name, value in values["recipe"].items() if name not in ends}
    now = {name: value for name, value in settings.as_json().items() if name not in ends}
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
    state.clock.before = max(state.clock.before, values["seconds"])


def descend(state: TrainingState, gradients: Sequence[Tensor], rate: float) -> None:
    """One step of the optimizer. Raises NumericError for gradients that are not finite."""
    for group in state.optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    for tensor, gradient in zip(state.trained.values(), gradients, strict=True):
        tensor.grad = gradient
    norm = torch.nn.utils.clip_grad_norm_(state.trained.values(), 1.0)
    if not torch.isfinite(norm):
        raise NumericError(f"the gradient is not finite at step {state.step}", hint="lower --learning-rate")
    state.optimizer.step()
    state.optimizer.zero_grad()


class Progress:
    """A line now and then about how training goes."""

    def __init__(self, say: Say, what: str = "layers") -> None:
        """`what` the losses are told by."""
        self._say = say
        self._what = what
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
            self._say(f"step {state.step}, {done:.1%}, {speed:.0f} tokens/s, loss by {self._what} {means}")
            self._shown, self._rows = seconds, 0
            self._losses.clear()
