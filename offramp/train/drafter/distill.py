"""What brings a draft's distribution to the target's: the losses of DistillSpec (arXiv 2310.08461), and their gradient.

p = the target's probabilities, q = the draft's, over the same ids; rows = places, ids = tokens that take part.
Each is 0 where p and q are equal. `tvd` is the chance that rejection sampling turns a draft token down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from offramp.train.drafter.recipe import LossName

HEAD_ROWS = 256
"""Rows of logits held at once."""
TINY = 1e-37
"""What probabilities count as at least, under a logarithm."""

Divergence = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""p and log q [rows, ids] -> how far they are apart [rows], and the gradient of that by q's logits [rows, ids]."""


def forward_kl(p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p || q): q has to cover all that p says."""
    return (torch.xlogy(p, p) - p * log_q).sum(dim=1), log_q.exp() - p


def reverse_kl(p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """KL(q || p): q may leave out some of what p says, and says nothing else."""
    q = log_q.exp()
    ratios = log_q - p.clamp(min=TINY).log()
    apart = (q * ratios).sum(dim=1)
    return apart, q * (ratios - apart[:, None])


def jsd(p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """Jensen-Shannon: half of KL to the middle of both, from either."""
    q = log_q.exp()
    log_middle = ((p + q) / 2).clamp(min=TINY).log()
    ratios = log_q - log_middle
    apart = (torch.xlogy(p, p) - p * log_middle + q * ratios).sum(dim=1) / 2
    return apart, _by_logits(q, ratios / 2)


def tvd(p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """Total variation: the part of q that lies above p."""
    q = log_q.exp()
    return (q - p).abs().sum(dim=1) / 2, _by_logits(q, (q - p).sign() / 2)


DIVERGENCES: Mapping[LossName, Divergence] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jsd": jsd,
    "tvd": tvd,
}


def _by_logits(q: Tensor, by_q: Tensor) -> Tensor:
    """The gradient by logits, from that by q."""
    return q * (by_q - (q * by_q).sum(dim=1, keepdim=True))


def target_distribution(x: Tensor, head: Tensor, corrections: Tensor | None = None) -> Tensor:
    """What the target says of these ids, [rows, ids] in the head's dtype, from what its head reads.

    x [rows, hidden], head [ids, hidden], corrections [ids] are added to the logits.
    """
    with torch.no_grad():
        return torch.cat(
            [_logits(some, head, corrections).softmax(dim=1).to(head.dtype) for some in x.split(HEAD_ROWS)]
        )


class DistributionLoss(torch.autograd.Function):  # type: ignore[misc]
    """Sum over rows of weight times how far `softmax(x @ head + corrections)` is from the wanted distribution.

    The gradient by x is made along with the loss, a few rows at a time: no logits are kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        head: Tensor,
        corrections: Tensor | None,
        wanted: Tensor,
        weights: Tensor,
        divergence: Divergence,
    ) -> Tensor:
        total = x.new_zeros((), dtype=torch.float32)
        gradient = torch.empty_like(x)
        for start in range(0, len(x), HEAD_ROWS):
            part = slice(start, start + HEAD_ROWS)
            log_q = _logits(x[part], head, corrections).log_softmax(dim=1)
            apart, by_logits = divergence(wanted[part].float(), log_q)
            total += (apart * weights[part]).sum()
            gradient[part] = by_logits.mul_(weights[part, None]).to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0].to(gradient.dtype), None, None, None, None, None


def _logits(x: Tensor, head: Tensor, corrections: Tensor | None) -> Tensor:
    logits = functional.linear(x, head).float()
    return logits if corrections is None else logits + corrections
