"""Training one exit's head: cross-entropy to the final distribution, early stopping, a checkpoint every epoch."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from offramp.errors import NumericError
from offramp.train.exits.head import TrainedHead
from offramp.train.exits.recipe import Recipe
from offramp.train.exits.targets import Targets
from offramp.whole_file import whole_file

States = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Part:
    """Some tokens at one exit point."""

    hidden: States  # [tokens, hidden]
    targets: Targets  # of the same tokens


@dataclass(slots=True)
class Fitting:
    """How far the training of a head has come."""

    head: TrainedHead
    optimizer: torch.optim.AdamW
    best: dict[str, Tensor]  # the tensors with the least validation loss so far
    best_loss: float = math.inf
    epoch: int = 0
    worse: int = 0  # epochs since the best
    ended: bool = False


def fit_head(
    head: TrainedHead,
    matrix: Tensor,
    trained: Part,
    validation: Part,
    recipe: Recipe,
    checkpoint: Path,
    *,
    progress: Callable[[], float],
    say: Callable[[str], None],
) -> TrainedHead:
    """The head at its best on validation; `progress` says how much of its time is used, 1 or more at the end.

    `matrix` [known, hidden] is the model's, in the type that it shall run in.
    """
    optimizer = torch.optim.AdamW(head.tensors.values(), lr=recipe.learning_rate, weight_decay=0.01)
    fitting = Fitting(head, optimizer, {name: tensor.detach().clone() for name, tensor in head.tensors.items()})
    if checkpoint.exists():
        _restore(fitting, torch.load(checkpoint, weights_only=True))
    known = np.flatnonzero(trained.targets.labels >= 0)
    while not fitting.ended:
        _run_epoch(fitting, matrix, trained, known, recipe, progress)
        loss, agreement = evaluate(head, matrix, validation)
        fitting.epoch += 1
        _judge(fitting, loss, recipe, progress())
        _keep(fitting, checkpoint)
        say(f"epoch {fitting.epoch}: validation loss {loss:.3f}, agreement {agreement:.3f}")
    with torch.no_grad():
        for name, tensor in head.tensors.items():
            tensor.copy_(fitting.best[name])
    return head


def evaluate(head: TrainedHead, matrix: Tensor, part: Part) -> tuple[float, float]:
    """Mean loss of the tokens that the head knows; share of all tokens where its argmax is full depth's."""
    total, num_known, agreed = 0.0, 0, 0
    with torch.no_grad():
        for start in range(0, len(part.hidden), 1024):
            some = np.arange(start, min(start + 1024, len(part.hidden)))
            logits, targets = _logits(head, matrix, part, some), part.targets.take(some)
            labels = torch.from_numpy(targets.labels)
            total += float((_losses(logits, targets) * (labels >= 0)).sum())
            num_known += int((labels >= 0).sum())
            agreed += int((logits.argmax(dim=1) == labels).sum())
    return total / max(1, num_known), agreed / len(part.hidden)


def _run_epoch(
    fitting: Fitting,
    matrix: Tensor,
    trained: Part,
    known: NDArray[np.intp],
    recipe: Recipe,
    progress: Callable[[], float],
) -> None:
    order = np.random.default_rng((recipe.seed, fitting.epoch)).permutation(known)
    for start in range(0, len(order), recipe.batch_rows):
        passed = progress()
        if passed >= 1:
            return
        epochs = (fitting.epoch + start / len(order)) / recipe.epochs
        done = max(epochs, math.floor(100 * passed) / 100)  # whole percents: small delays change no step
        for group in fitting.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        some = np.sort(order[start : start + recipe.batch_rows])
        loss = _losses(_logits(fitting.head, matrix, trained, some), trained.targets.take(some)).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(fitting.head.tensors.values(), 1.0)
        if not torch.isfinite(norm):
            raise NumericError(f"the gradient is not finite in epoch {fitting.epoch}", hint="lower --learning-rate")
        fitting.optimizer.step()
        fitting.optimizer.zero_grad()


def _logits(head: TrainedHead, matrix: Tensor, part: Part, tokens: NDArray[np.intp]) -> Tensor:
    return head.logits(torch.from_numpy(part.hidden[tokens].astype(np.float32)), matrix)


def _losses(logits: Tensor, targets: Targets) -> Tensor:
    """Cross-entropy to the target distribution, [tokens]."""
    logs = functional.log_softmax(logits, dim=1).gather(1, torch.from_numpy(targets.columns))
    return -(torch.from_numpy(targets.probabilities) * logs).sum(dim=1)


def _judge(fitting: Fitting, loss: float, recipe: Recipe, done: float) -> None:
    if loss < fitting.best_loss:
        fitting.best_loss, fitting.worse = loss, 0
        fitting.best = {name: tensor.detach().clone() for name, tensor in fitting.head.tensors.items()}
    else:
        fitting.worse += 1
    fitting.ended = fitting.worse > recipe.patience or fitting.epoch >= recipe.epochs or done >= 1


def _keep(fitting: Fitting, checkpoint: Path) -> None:
    content = io.BytesIO()
    values: dict[str, Any] = {
        "tensors": {name: tensor.detach() for name, tensor in fitting.head.tensors.items()},
        "optimizer": fitting.optimizer.state_dict(),
        "best": fitting.best,
        "best_loss": fitting.best_loss,
        "epoch": fitting.epoch,
        "worse": fitting.worse,
        "ended": fitting.ended,
    }
    torch.save(values, content)
    with whole_file(checkpoint) as file:
        file.write(content.getbuffer())


def _restore(fitting: Fitting, values: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, tensor in fitting.head.tensors.items():
            tensor.copy_(values["tensors"][name])
    fitting.optimizer.load_state_dict(values["optimizer"])
    fitting.best, fitting.best_loss = values["best"], values["best_loss"]
    fitting.epoch, fitting.worse, fitting.ended = values["epoch"], values["worse"], values["ended"]
