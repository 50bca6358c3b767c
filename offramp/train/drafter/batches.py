"""Texts as flat rows: place after place of one text, then of the next. Nothing is padded.

A place t has the token behind it, the states at it, and what is to be drafted there: the token two behind. Draft token
j of a draft that starts at place t is learned at place u = t + j - 1, from the token behind u, j from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offramp.core import Ids
from offramp.train.drafter.states import States, Text


@dataclass(frozen=True, slots=True)
class Packed:
    """Some texts. known = tokens that the drafter knows."""

    counts: tuple[int, ...]  # places of each text
    firsts: tuple[int, ...]  # the first of each where drafts start
    tokens: Tensor  # [rows], behind each place
    states: Tensor  # [rows, taps, hidden] f32
    finals: Tensor  # [rows, hidden] f32, the target's final states where the token to draft is decided
    columns: Tensor  # [rows], among those known, of the token to draft; -1: not known

    @property
    def starts(self) -> list[int]:
        """Where each text begins."""
        return [0, *np.cumsum(self.counts).tolist()]

    @property
    def target_rows(self) -> Tensor:
        """Where drafts start whose first token can be learned."""
        rows = self.rows(1)
        return rows[self.columns[rows] >= 0]

    def rows(self, step: int) -> Tensor:
        """Where a draft's token number `step` is learned, of all drafts that have one, text by text."""
        parts = [
            torch.arange(start + count - num, start + count)
            for start, count, num in zip(self.starts, self.counts, self.num_rows(step), strict=False)
        ]
        return torch.cat(parts)

    def num_rows(self, step: int) -> list[int]:
        """How many of those each text has."""
        return [max(0, count - first - step + 1) for first, count in zip(self.firsts, self.counts, strict=True)]

    @property
    def positions(self) -> Tensor:
        """Of each place in its text."""
        return torch.cat([torch.arange(count) for count in self.counts])


def pack_texts(texts: Sequence[Text], states: States, vocab_ids: Ids) -> Packed:
    """Read the states of these texts. The last row of each only says what was to be drafted before it."""
    counts = [text.num_rows - 1 for text in texts]
    read = [torch.from_numpy(states[text.at : text.at + text.num_rows].astype(np.float32)) for text in texts]
    wanted = np.concatenate([text.tokens[2:] for text in texts])
    places = np.minimum(np.searchsorted(vocab_ids, wanted), len(vocab_ids) - 1)
    columns = np.where(vocab_ids[places] == wanted, places, -1)
    return Packed(
        counts=tuple(counts),
        firsts=tuple(min(text.first, count) for text, count in zip(texts, counts, strict=True)),
        tokens=torch.from_numpy(np.concatenate([text.tokens[1:-1] for text in texts]).astype(np.int64)),
        states=torch.cat([part[:-1] for part in read]),
        finals=torch.cat([part[1:, -1] for part in read]),
        columns=torch.from_numpy(columns.astype(np.int64)),
    )


def split_texts(texts: Sequence[Text], count: int) -> list[list[Text]]:
    """At most `count` parts of like numbers of rows."""
    parts: list[list[Text]] = [[] for _ in range(min(count, len(texts)))]
    for text in sorted(texts, key=lambda text: -text.num_rows):
        min(parts, key=lambda part: sum(each.num_rows for each in part)).append(text)
    return parts
