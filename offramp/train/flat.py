"""Texts as rows one behind the other, nothing padded and nothing shared: a batch for the decoder.

rows = tokens of all texts, in order; heads = query heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from offramp.train.decoder import visible


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """Some texts of any lengths."""

    ids: Tensor  # [rows]
    counts: tuple[int, ...]  # rows of each text
    target_rows: Tensor  # [targets], rising: those that are to say something

    @property
    def positions(self) -> Tensor:
        """Of each row in its text, [rows]."""
        return torch.cat([torch.arange(count) for count in self.counts])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float) -> Tensor:
        """Causal attention, text by text: [heads, rows, head_dim]."""
        texts = zip(*(part.split(list(self.counts), dim=1) for part in (q, k, v)), strict=True)
        return torch.cat([_attend_one(*qkv, window=window, scale=scale) for qkv in texts], dim=1)


def _attend_one(q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float) -> Tensor:
    """Within one text, [heads, tokens, head_dim] each."""
    count = q.shape[1]
    seen = None if window is None or window >= count else visible(count, window)
    taken: Tensor = functional.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=seen, is_causal=seen is None, scale=scale
    )
    return taken[0]
