"""A batch's gradient in parts, side by side: a thread for each part, each with a thread of torch's.

A product of a few hundred rows is too small to be shared out among threads; whole layers of half the samples are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch
from torch import Tensor


class Part(Protocol):
    """Some samples of a batch."""

    @property
    def target_rows(self) -> Tensor:
        """The rows that have a target."""
        ...


P = TypeVar("P", bound=Part)

PartLoss = Callable[[int, P], tuple[Tensor, dict[int, float]]]
"""A part's number and samples -> its loss, the mean of its targets, and that of each exit (or draft token)."""


class Workers:
    """Threads that compute the parts of one batch after another."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def gradients(
        self, parts: Sequence[P], tensors: Sequence[Tensor], loss_of: PartLoss[P]
    ) -> tuple[list[Tensor], dict[int, float]]:
        """The gradient of the mean loss over all targets by each of `tensors`, and each exit's mean loss."""
        counts = [len(part.target_rows) for part in parts]
        shares = [count / max(1, sum(counts)) for count in counts]  # without any target nothing is learned

        def one(number: int) -> tuple[Sequence[Tensor], dict[int, float]]:
            loss, by_exit = loss_of(number, parts[number])
            return torch.autograd.grad(loss * shares[number], tensors, materialize_grads=True), by_exit

        found = list(self._pool.map(one, range(len(parts))))
        summed = [_sum(column) for column in zip(*(gradients for gradients, _ in found), strict=True)]
        exits = found[0][1]
        return summed, {
            layer: sum(s * each[layer] for s, (_, each) in zip(shares, found, strict=True)) for layer in exits
        }

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def _sum(tensors: Iterable[Tensor]) -> Tensor:
    first, *rest = tensors
    for each in rest:
        first = first + each
    return first
