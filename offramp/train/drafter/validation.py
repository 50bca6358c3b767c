"""How drafts would stand: on prompts that nothing was learned from, fed the target's own tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from offramp.core import Ids
from offramp.train.drafter.batches import pack_texts
from offramp.train.drafter.side import SideNet
from offramp.train.drafter.states import States, Text
from offramp.train.drafter.unroll import unroll

AT_ONCE = 8
"""Texts that are looked at together."""


def accepted_rates(
    net: SideNet, texts: Sequence[Text], states: States, vocab_ids: Ids, steps: int
) -> tuple[list[float], list[int]]:
    """For the 1st, 2nd, ... draft token the share that is the target's own where all before it are; and of how many.

    A token that the drafter does not know counts as a miss.
    """
    stood, tested = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    w = net.casted()
    with torch.no_grad():
        for start in range(0, len(texts), AT_ONCE):
            batch = pack_texts(texts[start : start + AT_ONCE], states, vocab_ids)
            standing = torch.ones(len(batch.tokens), dtype=torch.bool)  # by the place where the draft starts
            for drafted in unroll(net, w, batch, steps):
                logits = functional.linear(net.normed(drafted.hidden, w["norm"]), net.head)
                starts = drafted.rows - (drafted.step - 1)
                before = standing[starts]
                right = (logits.argmax(dim=1) == batch.columns[drafted.rows]) & before
                tested[drafted.step - 1] += int(before.sum())
                stood[drafted.step - 1] += int(right.sum())
                standing[starts] = right
    return [float(s / t) if t else 0.0 for s, t in zip(stood, tested, strict=True)], tested.tolist()


def expected_tokens(rates: Sequence[float]) -> float:
    """What a draft of so many tokens is worth: how many of them stand, on average."""
    return float(np.cumprod(rates).sum())


def line(rates: Sequence[float]) -> str:
    """For people."""
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    return f"accepted by place {shown}; {expected_tokens(rates):.2f} tokens a draft"
