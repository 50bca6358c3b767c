"""Drafter packs with random weights, and the side layer in numpy: the same bits as the native one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.draft.pack import DrafterPack
from offramp.draft.pack_config import DrafterConfig
from offramp.draft.side import SideWeights, side_config
from offramp.draft.side_model import SideModel
from offramp.model.config import PLAIN_FORM, ModelConfig
from offramp.model.executor import LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.model.tensors import LayerWeights, Matrix, Vector, WeightSource, all_roles, is_vector, layer_parts
from offramp.testing import arithmetic
from offramp.testing.toy import DictSource, ToyFormat, convert, toy_source
from offramp.testing.twin import TwinExecutor


def random_drafter(
    config: ModelConfig,
    *,
    model: str = "0" * 64,
    taps: tuple[int, ...] = (1, 2),
    width: int = 24,
    window: int = 40,
    vocab_ids: Ids | None = None,
    weights: ToyFormat = "q8",
    seed: int = 0,
) -> DrafterPack:
    """A pack as training makes it: not on disk yet. It knows all tokens unless `vocab_ids` says which."""
    side, hidden = side_config(config, width, window), config.hidden_size
    source = toy_source(side, seed, weights)
    rng = np.random.default_rng(seed + 1)
    layer: dict[str, Any] = {}
    for part in layer_parts(PLAIN_FORM):
        role = f"layers.0.{part}"
        layer[part] = source.vector(role) if is_vector(part) else source.matrix(role)

    def matrix(num_in: int) -> Matrix:
        values = rng.standard_normal((hidden, num_in)) / np.sqrt(num_in)
        return convert(values.astype(np.float32), weights)

    def vector(size: int) -> Vector:
        return rng.uniform(0.5, 1.5, size).astype(np.float32)

    ids = np.arange(config.vocab_size, dtype=np.int32) if vocab_ids is None else vocab_ids
    joined = (1 + len(taps)) * hidden
    return DrafterPack(
        config=DrafterConfig(
            model=model,
            model_name="toy",
            num_layers=config.num_layers,
            hidden_size=hidden,
            vocab_size=config.vocab_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            taps=taps,
            width=width,
            window=window,
            vocabulary=len(ids),
            provenance={"data": "random", "seed": seed},
        ),
        weights=SideWeights(
            first=matrix(joined),
            first_norm=vector(joined),
            next=matrix(2 * hidden),
            next_norm=vector(2 * hidden),
            layer=LayerWeights(**layer),
            norm=vector(hidden),
            vocab_ids=ids,
        ),
    )


def twin_side(source: WeightSource, pack: DrafterPack, num_pages: int) -> SideModel:
    """The pack's layer in numpy, beside a target with these weights."""
    weights = pack.weights
    config = side_config(source.config, pack.config.width, pack.config.window)
    matrices: dict[str, Matrix] = {"embedding": source.matrix("embedding")}
    vectors: dict[str, Vector] = {"final_norm": weights.norm}
    if not config.tie_embeddings:
        matrices["lm_head"] = source.matrix("lm_head")
    for part in layer_parts(PLAIN_FORM):
        parts: dict[str, Any] = vectors if is_vector(part) else matrices
        parts[f"layers.0.{part}"] = getattr(weights.layer, part)
    executor = TwinExecutor(DictSource(config, matrices, vectors), num_pages=num_pages)
    assert set(all_roles(config)) == matrices.keys() | vectors.keys()

    def product(matrix: Matrix, norm: Vector) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        return lambda x: arithmetic.matmul(arithmetic.rms_norm(x, norm, config.norm_eps), matrix)

    return SideModel(
        cast("LayerExecutor", executor),
        executor.add_head(HeadWeights(vocab_ids=weights.vocab_ids)),
        product(weights.first, weights.first_norm),
        product(weights.next, weights.next_norm),
    )
