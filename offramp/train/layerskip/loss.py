"""The early-exit loss: cross-entropy of every exit that is on, through the shared norm and head, on answers alone.

Tokens that an exit is sure of may leave there, as they will in use: deeper layers then see K/V projected from where
they left (the fill `propagate`), and learn to live with it.

rows = rows of the batch, targets = those with a target, ids = ids that take part in a step's loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from offramp.core import Ids
from offramp.train.decoder import Batch, Decoder


@dataclass(frozen=True, slots=True)
class StepVocabulary:
    """The ids of one step's loss: the exits' own, the targets', and a few of all others, which stand for the rest."""

    ids: Tensor  # [ids], rising
    corrections: Tensor  # [ids], added to the logits: log of how many ids each stands for


def step_vocabulary(
    known: Ids, targets: Tensor, vocab_size: int, num_others: int, noise: np.random.Generator
) -> StepVocabulary:
    """The loss over these ids is the full one in expectation over the draws (up to the logarithm)."""
    certain = np.union1d(known, targets.numpy())
    rest = np.setdiff1d(np.arange(vocab_size), certain, assume_unique=True)
    drawn = noise.choice(rest, min(num_others, len(rest)), replace=False)
    ids = np.sort(np.concatenate([certain, drawn]))
    weight = math.log(len(rest) / len(drawn)) if len(drawn) else 0.0
    corrections = np.where(np.isin(ids, drawn), weight, 0.0).astype(np.float32)
    return StepVocabulary(torch.from_numpy(ids), torch.from_numpy(corrections))


@dataclass(frozen=True, slots=True)
class Leaving:
    """Which tokens leave: those whose target an exit gives this probability, of this share of the samples."""

    probability: float
    share: float


STAY = Leaving(1.0, 0.0)


def early_exit_loss(
    decoder: Decoder,
    batch: Batch,
    vocabulary: StepVocabulary,
    weights: dict[int, float],
    rates: NDArray[np.float64],
    noise: np.random.Generator,
    leaving: Leaving = STAY,
) -> tuple[Tensor, dict[int, float]]:
    """The weighted loss, and the loss of each exit in nats a token that arrives there.

    `weights` by number of layers before the exit, the model's last among them; `rates` is each layer's chance that a
    sample skips it, [layers].
    """
    rows, head = batch.target_rows, decoder.head_rows(vocabulary.ids)
    targets = torch.searchsorted(vocabulary.ids, batch.target_ids)
    may_leave = _rows_of(batch, noise.random(len(batch.tokens)) < leaving.share)[rows]
    x = decoder.embed(batch)
    left = torch.zeros(len(x), 1, dtype=torch.bool)
    total = torch.zeros(())
    losses: dict[int, float] = {}
    for index in range(decoder.config.num_layers):
        kept = np.flatnonzero(noise.random(len(batch.tokens)) >= rates[index])
        x = torch.where(left, x, _layer_for_some(decoder, index, x, batch, kept))
        if index + 1 in weights:
            normed = decoder.norm(x[rows], decoder.final_norm).to(decoder.dtype)
            logits = (normed @ head.t()).float() + vocabulary.corrections
            surprise = functional.cross_entropy(logits, targets, reduction="none")
            here = ~left[rows, 0]
            losses[index + 1] = (surprise[here].sum() / here.sum().clamp(min=1)).item()
            total = total + weights[index + 1] * (surprise * here).mean()
            sure = surprise.detach() <= -math.log(leaving.probability)
            left = left.clone()  # the graph keeps the one before
            left[rows[sure & may_leave]] = True
    return total, losses


def _rows_of(batch: Batch, samples: NDArray[np.bool_]) -> Tensor:
    """Which rows belong to these samples, [rows]; the prefix belongs to all."""
    prefix, length = batch.prefix.numel(), batch.tokens.shape[1]
    return torch.cat([torch.ones(prefix, dtype=torch.bool), torch.from_numpy(samples).repeat_interleave(length)])


def _layer_for_some(decoder: Decoder, index: int, x: Tensor, batch: Batch, kept: NDArray[np.intp]) -> Tensor:
    """One layer; samples that are not kept skip it."""
    if len(kept) == len(batch.tokens):
        return decoder.run_layer(index, x, batch)
    if len(kept) == 0 and batch.prefix.numel() == 0:
        return x  # nobody runs it
    start, length = batch.prefix.numel(), batch.tokens.shape[1]
    chosen = torch.from_numpy(kept)
    some = Batch(batch.prefix, batch.tokens[chosen], batch.targets[chosen])
    behind = (start + chosen[:, None] * length + torch.arange(length)).reshape(-1)
    places = torch.cat([torch.arange(start), behind])
    return x.index_copy(0, places, decoder.run_layer(index, x[places], some))
