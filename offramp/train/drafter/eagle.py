"""A side layer as a pupil: texts at its taps, drafts unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from offramp.train.drafter.batches import Packed, pack_texts, split_texts
from offramp.train.drafter.distill import DIVERGENCES
from offramp.train.drafter.fit import Lesson
from offramp.train.drafter.material import Material
from offramp.train.drafter.recipe import Recipe
from offramp.train.drafter.side import SideNet
from offramp.train.drafter.states import Text
from offramp.train.drafter.unroll import unrolled_loss
from offramp.train.drafter.validation import accepted_rates

QUICK = 48
"""Held-out texts that are measured along the way."""


@dataclass(frozen=True, slots=True)
class Eagle:
    """A net, what it learns from and how."""

    net: SideNet
    material: Material
    recipe: Recipe
    norm_rate: float = 1.0

    @property
    def trained(self) -> dict[str, Tensor]:
        return self.net.trained

    def lesson(self, texts: Sequence[Text], step: int, num_parts: int) -> Lesson[Packed]:
        """Drafts from all places of the texts; nothing is drawn."""
        w, recipe = self.net.casted(), self.recipe
        parts = [
            pack_texts(part, self.material.states, self.material.vocab_ids) for part in split_texts(texts, num_parts)
        ]

        def part_loss(number: int, part: Packed) -> tuple[Tensor, dict[int, float]]:
            return unrolled_loss(self.net, w, part, recipe.unrolled, recipe.decay, DIVERGENCES[recipe.loss])

        return Lesson(parts, list(w.values()), part_loss)

    def quick_rates(self) -> list[float]:
        some = self.material.kept[:QUICK]
        rates, _ = accepted_rates(self.net, some, self.material.states, self.material.vocab_ids, self.recipe.unrolled)
        return rates
