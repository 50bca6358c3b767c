"""The tensors of an exit pack: which there must be, from stored bytes to weights, and back.

Names, for each exit point l: `exits.{l}.norm` and `.input_norm` (vectors), `.down` and `.up` (floats, or q8 as
`.quants` and `.scales`), `exits.{l}.predictor.w1`, `.b1`, `.w2`, `.b2`; `vocab_ids` for all of them, or
`exits.{l}.vocab_ids`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offramp.core import Ids
from offramp.exits.pack import ExitHead
from offramp.exits.pack_config import PackConfig
from offramp.exits.predictors import LinearPredictor, MlpPredictor
from offramp.model.heads import HeadWeights
from offramp.model.pack_tensors import Arrays, StoredParts, stored_part
from offramp.model.tensors import F32Matrix


class PackTensors(StoredParts):
    """Takes the tensors of one file by name, each once; every error names file, tensor and sizes."""

    def vocabularies(self, config: PackConfig) -> dict[int, Ids | None]:
        """What each head knows, by exit point; equal ones are one object."""
        if not isinstance(config.vocabulary, tuple):
            size = config.vocabulary
            ids = None if size is None else self.vocab_ids("vocab_ids", size, config.vocab_size)
            return dict.fromkeys(config.layers, ids)
        sizes = zip(config.layers, config.vocabulary, strict=True)
        read = {layer: self.vocab_ids(f"exits.{layer}.vocab_ids", size, config.vocab_size) for layer, size in sizes}
        known: dict[bytes, Ids] = {}
        return {layer: known.setdefault(ids.tobytes(), ids) for layer, ids in read.items()}

    def head(self, layer: int, config: PackConfig, vocab_ids: Ids | None) -> HeadWeights:
        """The head of an exit point with weights of its own."""
        assert config.rank is not None
        name, hidden = f"exits.{layer}", config.hidden_size
        return HeadWeights(
            norm=self.vector(f"{name}.norm", hidden),
            input_norm=self.vector(f"{name}.input_norm", hidden),
            down=self.matrix(f"{name}.down", (config.rank, hidden)),
            up=self.matrix(f"{name}.up", (hidden, config.rank)),
            vocab_ids=vocab_ids,
        )

    def predictor(self, layer: int, config: PackConfig) -> LinearPredictor | MlpPredictor | None:
        name, hidden = f"exits.{layer}.predictor", config.hidden_size
        if config.predictors is None:
            return None
        if config.predictors == "linear":
            return LinearPredictor(self.values(f"{name}.w1", (1, hidden)), self.vector(f"{name}.b1", 1))
        width = self.length(f"{name}.b1")
        return MlpPredictor(
            self.values(f"{name}.w1", (width, hidden)),
            self.vector(f"{name}.b1", width),
            self.values(f"{name}.w2", (1, width)),
            self.vector(f"{name}.b2", 1),
        )


def stored(config: PackConfig, exits: Mapping[int, ExitHead]) -> Arrays:
    """The tensors of a pack: matrices as f16 unless they are q8, vectors as f32. Raises CorruptModelError for NaN."""
    arrays = _vocabularies(config, exits)
    for layer, each in exits.items():
        head = each.head
        assert head.matrix is None, "a pack holds no output matrices"
        parts = {"norm": head.norm, "input_norm": head.input_norm, "down": head.down, "up": head.up}
        assert {part is None for part in parts.values()} == {config.kind == "shared"}, "all parts, or none"
        for part, value in parts.items():
            arrays.update(stored_part(f"exits.{layer}.{part}", value))
        for part in ("w1", "b1", "w2", "b2"):
            values = getattr(each.predictor, part, None)
            matrix = F32Matrix(values) if values is not None and values.ndim == 2 else values
            arrays.update(stored_part(f"exits.{layer}.predictor.{part}", matrix))
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _vocabularies(config: PackConfig, exits: Mapping[int, ExitHead]) -> Arrays:
    known = {layer: each.head.vocab_ids for layer, each in exits.items()}
    if isinstance(config.vocabulary, tuple):
        return {f"exits.{layer}.vocab_ids": ids for layer, ids in known.items() if ids is not None}
    first, *rest = known.values()
    if first is None:
        assert all(ids is None for ids in rest), "all heads of a pack know all tokens, or none does"
        return {}
    assert all(ids is not None and np.array_equal(ids, first) for ids in rest), "the config says: the same tokens"
    return {"vocab_ids": first}
