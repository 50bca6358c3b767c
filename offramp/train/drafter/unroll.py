"""A draft's tokens one behind the other, each from the layer's own output before it, for all places at once.

Token j of a draft sees the places up to the draft's start, with their real states, and the draft's own tokens before
it: the same that it sees at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from offramp.train.drafter.batches import Packed
from offramp.train.drafter.distill import DistributionLoss, Divergence, target_distribution
from offramp.train.drafter.side import SideNet


@dataclass(frozen=True, slots=True)
class Drafted:
    """One token of every draft that has so many."""

    step: int  # from 1
    hidden: Tensor  # [rows, hidden] f32, the layer's output
    rows: Tensor  # [rows], where each is learned


def unroll(net: SideNet, w: Mapping[str, Tensor], batch: Packed, steps: int) -> Iterator[Drafted]:
    """Draft token 1, 2, ... of all drafts of a batch."""
    positions = batch.positions
    rows = batch.rows(1)
    everywhere = net.first(w, batch.tokens, batch.states)
    keys = net.normed(everywhere, w["attn_norm"])
    keys_here, values_here = net.heads(keys, w["kv"], None).chunk(2, dim=1)
    context = _Context(net, batch, net.rotated(keys_here, positions), values_here)
    s, x = everywhere[rows], keys[rows]
    for step in range(1, steps + 1):
        attended = context.attend(net.heads(x, w["q"], positions[rows]), step)
        hidden = net.behind(w, s, attended)
        yield Drafted(step, hidden, rows)
        if step == steps or not any(batch.num_rows(step + 1)):
            return
        kept, rows = _further(batch, step), batch.rows(step + 1)
        s = net.next(w, batch.tokens[rows], hidden[kept])
        x = net.normed(s, w["attn_norm"])
        keys_here, values_here = net.heads(x, w["kv"], None).chunk(2, dim=1)
        context.add(net.rotated(keys_here, positions[rows]), values_here)


class _Context:
    """What drafts see: places of their text, and tokens of their own."""

    def __init__(self, net: SideNet, batch: Packed, keys: Tensor, values: Tensor) -> None:
        """keys, values [rows, kv, head_dim] of all places."""
        self._net = net
        self._batch = batch
        self._group = net.config.num_heads // net.config.num_kv_heads
        window = net.config.attention_of(0).window
        self._window = window or (1 << 30)
        self._places = [self._by_text(part, list(batch.counts)) for part in (keys, values)]
        self._own: list[list[list[Tensor]]] = []  # by step from 2: keys and values, by text

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Those of the next token of all drafts."""
        counts = self._batch.num_rows(len(self._own) + 2)
        self._own.append([self._by_text(part, counts) for part in (keys, values)])

    def attend(self, queries: Tensor, step: int) -> Tensor:
        """[rows, heads, head_dim] -> [rows, heads * head_dim]"""
        counts = self._batch.num_rows(step)
        out = []
        for text, query in enumerate(queries.split(counts)):
            count = counts[text]
            if count == 0:
                continue
            keys, values = (
                torch.cat([self._places[kind][text], *(own[kind][text][:, :count] for own in self._own)], dim=1)
                for kind in (0, 1)
            )
            seen = self._visible(text, count, step)
            taken = functional.scaled_dot_product_attention(
                query.transpose(0, 1)[None], keys[None], values[None], attn_mask=seen,
                scale=self._net.config.attention_scale,
            )  # fmt: skip
            out.append(taken[0].transpose(0, 1).flatten(1))
        return torch.cat(out)

    def _by_text(self, part: Tensor, counts: list[int]) -> list[Tensor]:
        """[heads, places, head_dim] of each text."""
        return [each.transpose(0, 1).repeat_interleave(self._group, dim=0) for each in part.split(counts)]

    def _visible(self, text: int, count: int, step: int) -> Tensor:
        """[drafts, places + own tokens] bool"""
        start = self._batch.firsts[text] + torch.arange(count)
        place = torch.arange(self._batch.counts[text])
        distance = (start + step - 1)[:, None] - place[None, :]
        seen = (place[None, :] <= start[:, None]) & (distance < self._window)
        own = [torch.eye(count, dtype=torch.bool)] * (step - 1)
        return torch.cat([seen, *own], dim=1)


def _further(batch: Packed, step: int) -> Tensor:
    """Of the drafts with a token number `step` those with one more, as indices: all but the last of each text."""
    parts, start = [], 0
    for count, more in zip(batch.num_rows(step), batch.num_rows(step + 1), strict=True):
        parts.append(torch.arange(start, start + more))
        start += count
    return torch.cat(parts)


def unrolled_loss(
    net: SideNet, w: Mapping[str, Tensor], batch: Packed, steps: int, decay: float, divergence: Divergence
) -> tuple[Tensor, dict[int, float]]:
    """Mean loss of drafts whose tokens are known, later ones weighing less; and that of each step."""
    rows = batch.rows(1)
    wanted = target_distribution(net.normed(batch.finals[rows], net.final_norm), net.head)
    place = torch.full((len(batch.tokens),), -1)
    place[rows] = torch.arange(len(rows))
    shares = [decay**step for step in range(steps)]
    total = torch.zeros(())
    by_step = dict.fromkeys(range(1, steps + 1), 0.0)
    for drafted in unroll(net, w, batch, steps):
        known = (batch.columns[drafted.rows] >= 0).float()
        count = max(1.0, float(known.sum()))
        x = net.normed(drafted.hidden, w["norm"])
        loss = DistributionLoss.apply(x, net.head, None, wanted[place[drafted.rows]], known / count, divergence)
        total = total + shares[drafted.step - 1] / sum(shares) * loss
        by_step[drafted.step] = float(loss.detach())
    return total, by_step
