"""Exit packs with random weights, for a model of any config."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.exits.pack import ExitHead, ExitPack
from offramp.exits.pack_config import Kind, PackConfig, PredictorKind
from offramp.exits.predictors import LinearPredictor, MlpPredictor
from offramp.model.config import ModelConfig
from offramp.model.heads import HeadWeights
from offramp.testing.heads import random_head

INNER_WIDTH = 6


def random_pack(
    config: ModelConfig,
    *,
    model: str = "0" * 64,
    layers: tuple[int, ...] = (1, 2),
    kind: Kind = "adapter",
    rank: int = 5,
    vocab_ids: Ids | None = None,
    own_vocabularies: bool = False,
    predictors: PredictorKind | None = None,
    weights: Literal["f32", "q8"] = "q8",
    seed: int = 0,
) -> ExitPack:
    """A pack as training makes it: not on disk yet, its f32 values not rounded to f16.

    With `own_vocabularies` each exit point after the first knows one of `vocab_ids` less than the one before.
    """
    exits: dict[int, ExitHead] = {}
    shared = HeadWeights(vocab_ids=vocab_ids)
    for i, layer in enumerate(layers):
        if own_vocabularies:
            assert vocab_ids is not None
            vocab_ids = vocab_ids[: len(vocab_ids) - min(i, 1)]
            shared = HeadWeights(vocab_ids=vocab_ids)
        head = random_head(config, seed=seed + layer, rank=rank, weights=weights, vocab_ids=vocab_ids)
        exits[layer] = ExitHead(shared if kind == "shared" else head, _predictor(config, predictors, seed + layer))
    known = [each.head.vocab_ids for each in exits.values()]
    sizes = tuple(len(ids) for ids in known if ids is not None)
    about = PackConfig(
        model=model,
        model_name="toy",
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        kind=kind,
        layers=layers,
        rank=rank if kind == "adapter" else None,
        vocabulary=None if not sizes else sizes if own_vocabularies else sizes[0],
        predictors=predictors,
        provenance={"data": "random", "seed": seed, "figures": {"agreement": [0.5, 0.75]}},
    )
    return ExitPack(config=about, exits=exits)


def _predictor(config: ModelConfig, kind: PredictorKind | None, seed: int) -> LinearPredictor | MlpPredictor | None:
    rng = np.random.default_rng(seed)

    def values(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape).astype(np.float32)

    if kind is None:
        return None
    if kind == "linear":
        return LinearPredictor(values(1, config.hidden_size), values(1))
    return MlpPredictor(values(INNER_WIDTH, config.hidden_size), values(INNER_WIDTH), values(1, INNER_WIDTH), values(1))
