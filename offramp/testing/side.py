"""Drafter packs with random weights, and the side layer in numpy: the same bits as the native one."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from offramp.core import Ids, Rows
from offramp.draft.pack import DrafterPack
from offramp.draft.pack_config import DrafterConfig
from offramp.draft.side import SideWeights, side_config
from offramp.draft.side_model import Guesses, SideExecutor, SideModel
from offramp.model.config import PLAIN_FORM, ModelConfig
from offramp.model.executor import HeadId, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import LayerWeights, Matrix, Vector, WeightSource, all_roles, is_vector, layer_parts
from offramp.testing import arithmetic
from offramp.testing.arithmetic import F32
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


class ComposedSide:
    """`SideExecutor` by one call after the other of any executor; joins by numpy."""

    def __init__(self, executor: LayerExecutor) -> None:
        self._executor = executor
        self._joins: list[tuple[Matrix, Vector]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def add_join(self, matrix: Matrix, norm: Vector) -> int:
        self._joins.append((matrix, norm))
        return len(self._joins) - 1

    def run_joined(
        self, join: int, rows: Rows, states: F32, chosen: Ids, head: HeadId, num_guesses: int
    ) -> tuple[ArrayHidden, Guesses]:
        h = ArrayHidden(self._joined(join, rows, states))
        if len(chosen) == 0:
            self._executor.fill(h, rows, 0, 1)
            return ArrayHidden(h.numpy()[:0].copy()), []
        out = ArrayHidden(self._executor.run_layers(h, rows, 0, 1).numpy()[chosen])
        if not num_guesses:
            return out, []
        top = self._executor.top(out, num_guesses, head)
        shares = arithmetic.exp(top.logits - top.log_sum_exp[:, None])
        pairs = zip(top.ids.tolist(), shares.tolist(), strict=True)
        return out, [list(zip(ids, row, strict=True)) for ids, row in pairs]

    def _joined(self, join: int, rows: Rows, states: F32) -> F32:
        """The layer's input."""
        matrix, norm = self._joins[join]
        epsilon = self._executor.config.norm_eps
        parts = np.concatenate([self._executor.embed(rows).numpy()[:, None], states], axis=1)
        with np.errstate(all="ignore"):
            return arithmetic.matmul(arithmetic.rms_norm(units(parts, epsilon), norm, epsilon), matrix)


def units(parts: F32, epsilon: float) -> F32:
    """Each part [rows, parts, hidden] over its root mean square, side by side: [rows, parts * hidden]."""
    hidden = parts.shape[2]
    flat = arithmetic.rms_norm(parts.reshape(-1, hidden), np.ones(hidden, dtype=np.float32), epsilon)
    return flat.reshape(len(parts), -1)


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
    twin = TwinExecutor(DictSource(config, matrices, vectors), num_pages=num_pages)
    assert set(all_roles(config)) == matrices.keys() | vectors.keys()
    return composed_side(cast("LayerExecutor", twin), pack)


def composed_side(executor: LayerExecutor, pack: DrafterPack) -> SideModel:
    """The pack's layer over an executor that has it already, by calls of it alone."""
    weights, composed = pack.weights, ComposedSide(executor)
    return SideModel(
        cast("SideExecutor", composed),
        executor.add_head(HeadWeights(vocab_ids=weights.vocab_ids)),
        composed.add_join(weights.first, weights.first_norm),
        composed.add_join(weights.next, weights.next_norm),
    )
