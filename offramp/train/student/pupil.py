"""A shallow decoder as a pupil: it reads whole texts and learns to say what the target says at each place.

ids = tokens that take part in a step's loss: the most frequent ones, the texts' own, and some that stand for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offramp.train.decoder import Decoder
from offramp.train.drafter.batches import split_texts
from offramp.train.drafter.distill import DIVERGENCES, DistributionLoss, target_distribution
from offramp.train.drafter.fit import Lesson
from offramp.train.drafter.material import Material
from offramp.train.drafter.states import Text
from offramp.train.layerskip.loss import step_vocabulary
from offramp.train.student.batches import Taught, taught, wanted_ids
from offramp.train.student.recipe import Recipe
from offramp.train.student.validation import accepted_rates

QUICK = 48
"""Held-out texts that are measured along the way."""
NORM_RATE = 0.1
"""Learning rate of norms' weights as a part of that of the matrices: they begin near where they should be."""


@dataclass(frozen=True, slots=True)
class Student:
    """A decoder, what is trained of it, what it learns from and how."""

    decoder: Decoder
    trained: dict[str, Tensor]
    target_norm: Tensor  # [hidden], the target's final norm: the decoder's own learns
    material: Material
    recipe: Recipe
    norm_rate: float = NORM_RATE

    def lesson(self, texts: Sequence[Text], step: int, num_parts: int) -> Lesson[Taught]:
        """Whole texts; the ids that stand for seldom ones are drawn anew at each step."""
        decoder, recipe, material = self.decoder, self.recipe, self.material
        noise = np.random.default_rng((recipe.seed, step))
        own = torch.from_numpy(wanted_ids(texts))
        vocabulary = step_vocabulary(material.vocab_ids, own, decoder.config.vocab_size, recipe.other_ids, noise)
        head, corrections = decoder.head_rows(vocabulary.ids), vocabulary.corrections
        num_layers, divergence = decoder.config.num_layers, DIVERGENCES[recipe.loss]

        def part_loss(number: int, part: Taught) -> tuple[Tensor, dict[int, float]]:
            read = decoder.norm(part.finals, self.target_norm).to(decoder.dtype)
            wanted = target_distribution(read, head, corrections)
            x = decoder.states_at(part.rows, (num_layers,))[num_layers]
            weights = torch.full((len(x),), 1 / len(x))
            loss = DistributionLoss.apply(x, head, corrections, wanted, weights, divergence)
            return loss, {1: float(loss.detach())}

        parts = [taught(part, material.states) for part in split_texts(texts, num_parts)]
        return Lesson(parts, list(self.trained.values()), part_loss)

    def quick_rates(self) -> list[float]:
        rates, _ = accepted_rates(self.decoder, self.material.kept[:QUICK], self.material.vocab_ids)
        return rates
