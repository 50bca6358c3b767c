"""Texts as a student reads them: all their tokens as rows, and what the target says at each place to be learned.

Of text token t the row says token t + 1. The answer's first token is none of those to be learned: it comes with the
prompt, and no draft begins before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.train.drafter.states import States, Text
from offramp.train.flat import FlatBatch


@dataclass(frozen=True, slots=True)
class Taught:
    """Some texts, with the target's final states where something is learned."""

    rows: FlatBatch
    finals: Tensor  # [targets, hidden] f32

    @property
    def target_rows(self) -> Tensor:
        return self.rows.target_rows


def read_rows(texts: Sequence[Text]) -> FlatBatch:
    """Their rows; a target where a draft's token may stand."""
    counts = tuple(text.num_rows for text in texts)
    starts = np.cumsum((0, *counts[:-1]))
    targets = [np.arange(text.first + 1, text.num_rows) + start for text, start in zip(texts, starts, strict=True)]
    ids = np.concatenate([text.tokens[:-1] for text in texts])
    return FlatBatch(torch.from_numpy(ids.astype(np.int64)), counts, torch.from_numpy(np.concatenate(targets)))


def taught(texts: Sequence[Text], states: States) -> Taught:
    """With what the target says; reads its states [rows, 1, hidden]."""
    finals = [states[text.at + text.first + 1 : text.at + text.num_rows, -1].astype(np.float32) for text in texts]
    return Taught(read_rows(texts), torch.from_numpy(np.concatenate(finals)))


def wanted_ids(texts: Sequence[Text]) -> NDArray[np.int64]:
    """The texts' own tokens at the places of `read_rows`' targets, [targets]."""
    return np.concatenate([text.tokens[text.first + 2 :] for text in texts]).astype(np.int64)
