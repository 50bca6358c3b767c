"""Heads as the extension takes them, and what each of them knows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from offramp.core import Ids
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, HeadId
from offramp.model.heads import HeadWeights, check_head
from offramp.model.tensors import Matrix, Vector
from offramp.native.large_pages import moved_to_large_pages
from offramp.native.packed import PackedMatrix, gather, pack


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedHead:
    """One head; without an adapter its input_norm, down and up are None."""

    matrix: PackedMatrix
    norm: Vector
    vocab_ids: Ids | None = None
    input_norm: Vector | None = None
    down: PackedMatrix | None = None
    up: PackedMatrix | None = None


class PackedHeads:
    """The heads of one executor by number, kept alive here; the model's own is FINAL."""

    def __init__(self, config: ModelConfig, matrix: PackedMatrix, norm: Vector) -> None:
        self._config = config
        self._heads = [PackedHead(matrix=matrix, norm=norm)]
        self._reduced: dict[bytes, PackedMatrix] = {}  # rows of the model's own matrix, shared by heads of equal ids

    @property
    def own_matrix(self) -> PackedMatrix:
        """The model's own."""
        return self._heads[FINAL].matrix

    def pack(self, weights: HeadWeights) -> PackedHead:
        """The head for this model, not yet kept. Raises CorruptModelError if it does not fit."""
        check_head(weights, self._config)
        ids = weights.vocab_ids
        return PackedHead(
            matrix=self._own_rows(ids) if weights.matrix is None else _settled(pack(weights.matrix)),
            norm=self._heads[FINAL].norm if weights.norm is None else np.ascontiguousarray(weights.norm),
            vocab_ids=ids,
            input_norm=None if weights.input_norm is None else np.ascontiguousarray(weights.input_norm),
            down=_packed(weights.down),
            up=_packed(weights.up),
        )

    def keep(self, head: PackedHead, number: HeadId) -> HeadId:
        assert number == len(self._heads), (number, len(self._heads))
        self._heads.append(head)
        return number

    def ids(self, head: HeadId) -> Ids | None:
        """The tokens that a head knows; None: all."""
        return self._at(head).vocab_ids

    def num_tokens(self, head: HeadId) -> int:
        return self._at(head).matrix.out_features

    def _at(self, head: HeadId) -> PackedHead:
        assert 0 <= head < len(self._heads), f"no head {head}"
        return self._heads[head]

    def _own_rows(self, ids: Ids | None) -> PackedMatrix:
        """The model's own matrix, or a few rows of it."""
        own = self._heads[FINAL].matrix
        if ids is None:
            return own
        key = ids.tobytes()
        if key not in self._reduced:
            self._reduced[key] = _settled(gather(own, ids))
        return self._reduced[key]


def _settled(matrix: PackedMatrix) -> PackedMatrix:
    """The matrix in large pages: the head of 4,096 tokens then takes a third less time."""
    return replace(matrix, tiles=moved_to_large_pages(matrix.tiles))


def _packed(matrix: Matrix | None) -> PackedMatrix | None:
    return None if matrix is None else pack(matrix)
