"""Sampling with the C++ kernel: the same tokens as `offramp.sample.sampler.sample_rows_numpy`, in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import SamplingParams
from offramp.errors import OfframpError
from offramp.native._native import draw_token
from offramp.sample.processors import Row
from offramp.sample.race import NoiseKey
from offramp.sample.sampler import RowJob, sample_rows_with


@dataclass(frozen=True, slots=True)
class NativeDraw:
    """The kernel as a `Draw`; `portable` keeps it off this machine's vector instructions."""

    portable: bool = False

    def __call__(self, row: Row, params: SamplingParams, key: NoiseKey) -> int:
        return draw_token(
            row,
            params.temperature,
            min(max(params.top_k, 0), len(row)),
            params.top_p,
            params.min_p,
            key.seed,
            key.choice,
            key.position,
            self.portable,
        )


def sample_rows(
    logits: NDArray[np.float32], jobs: Sequence[RowJob], *, portable: bool = False
) -> list[int | OfframpError]:
    """A token or an error for each row of logits [rows, vocab], which stay as they are; draws free the GIL."""
    return sample_rows_with(NativeDraw(portable), logits, jobs)
