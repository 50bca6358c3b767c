"""How a student's drafts would stand: on prompts that nothing was learned from, fed the target's own greedy tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from offramp.core import Ids
from offramp.train.decoder import Decoder
from offramp.train.drafter.distill import HEAD_ROWS
from offramp.train.drafter.states import Text
from offramp.train.student.batches import read_rows, wanted_ids

AT_ONCE = 8
"""Texts that are looked at together."""
PLACES = 3
"""Of a draft, that are measured."""

Flags = NDArray[np.bool_]


def accepted_rates(
    decoder: Decoder, texts: Sequence[Text], vocab_ids: Ids | None = None
) -> tuple[list[float], list[int]]:
    """For the 1st, 2nd, ... draft token the share that is the target's own where all before it are; and of how many.

    With `vocab_ids` no others are looked at besides the texts' own: nearly the same, and quicker.
    """
    ids = None if vocab_ids is None else torch.from_numpy(np.union1d(vocab_ids, wanted_ids(texts)))
    flags: list[Flags] = []
    for start in range(0, len(texts), AT_ONCE):
        flags += right_tokens(decoder, texts[start : start + AT_ONCE], ids)
    return rates_by_place(flags, PLACES)


def right_tokens(decoder: Decoder, texts: Sequence[Text], ids: Tensor | None = None) -> list[Flags]:
    """By text, at each place of a draft whether the likeliest token is the text's own, given those before.

    Of all tokens, or of these ids.
    """
    num_layers = decoder.config.num_layers
    matrix = decoder.embedding if decoder.lm_head is None else decoder.lm_head
    rows = matrix if ids is None else matrix[ids]
    with torch.no_grad():
        states = decoder.states_at(read_rows(texts), (num_layers,))[num_layers].float()
        best = torch.cat([functional.linear(some, rows).argmax(dim=1) for some in states.split(HEAD_ROWS)])
    right = (best if ids is None else ids[best]).numpy() == wanted_ids(texts)
    return np.split(right, np.cumsum([text.num_drafts for text in texts])[:-1])


def rates_by_place(texts: Iterable[Flags], places: int) -> tuple[list[float], list[int]]:
    """A draft starts at every place. While its tokens are the text's, the next one is drafted as the text goes on."""
    stood, tested = np.zeros(places, np.int64), np.zeros(places, np.int64)
    for right in texts:
        before = np.ones(len(right), np.bool_)  # by where a draft starts
        for place in range(min(places, len(right))):
            before = before[: len(right) - place]
            here = before & right[place:]
            tested[place] += before.sum()
            stood[place] += here.sum()
            before = here
    return [float(s / t) if t else 0.0 for s, t in zip(stood, tested, strict=True)], tested.tolist()
