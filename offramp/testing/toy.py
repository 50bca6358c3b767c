"""Toy models built in code: real layers, random weights from a seed, small enough for the numpy twin.

Weights are scaled so that attention and MLP both move the residual stream and logits spread over a few units: greedy
continuations wander instead of repeating one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.quantize import dequantize, quantize_q4, quantize_q8
from offramp.model.tensors import F32Matrix, Matrix, Vector, all_roles, is_norm, is_vector, role_shape

ToyFormat = Literal["f32", "q8", "q4"]

TOY_DEFAULTS: Mapping[str, Any] = {
    "family": "llama",
    "num_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "vocab_size": 260,
    "norm_eps": 1e-5,
    "max_context": 512,
    "tie_embeddings": True,
}


@dataclass(frozen=True, slots=True)
class DictSource:
    """`WeightSource` over weights in memory."""

    config: ModelConfig
    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Vector]

    def roles(self) -> Sequence[str]:
        return all_roles(self.config)

    def matrix(self, role: str) -> Matrix:
        return self.matrices[role]

    def vector(self, role: str) -> Vector:
        return self.vectors[role]

    def sha256(self) -> str:
        """Digest of all values: tells whether recordings made from these weights still apply."""
        digest = hashlib.sha256()
        for role in self.roles():
            values = self.vectors[role] if role in self.vectors else dequantize(self.matrices[role])
            digest.update(values.tobytes())
        return digest.hexdigest()


def toy_config(**overrides: object) -> ModelConfig:
    """A small valid config; any `ModelConfig` field can be overridden (vocab_size 260 suits `ByteTokenizer`)."""
    unknown = overrides.keys() - {field.name for field in fields(ModelConfig)}
    assert not unknown, f"no such ModelConfig field: {sorted(unknown)}"
    values: dict[str, Any] = {**TOY_DEFAULTS, **overrides}
    values.setdefault("rope", RopeConfig(rotary_dim=values["head_dim"]))
    return ModelConfig(**values)


def toy_source(config: ModelConfig, seed: int, weights: ToyFormat = "f32") -> DictSource:
    """Random weights for `config`; the same values before quantization whatever the format."""
    rng = np.random.default_rng(seed)
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, Vector] = {}
    for role in all_roles(config):
        shape = role_shape(config, role)
        if is_norm(role):
            vectors[role] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            continue
        if is_vector(role):
            vectors[role] = (0.5 * rng.standard_normal(shape)).astype(np.float32)
            continue
        values = (rng.standard_normal(shape) * _spread(role.rpartition(".")[2], shape[1])).astype(np.float32)
        matrices[role] = convert(values, weights)
    return DictSource(config, matrices, vectors)


def convert(values: np.ndarray[Any, np.dtype[np.float32]], weights: ToyFormat) -> Matrix:
    """An f32 matrix in one of the three formats."""
    if weights == "q8":
        return quantize_q8(values)
    return quantize_q4(values) if weights == "q4" else F32Matrix(values)


def _spread(part: str, num_in: int) -> float:
    """Standard deviation of a matrix's weights; sharper queries and keys make attention pick, not average."""
    if part in ("embedding", "lm_head"):
        return float(2.0 / np.sqrt(num_in))
    return float({"q": 2.0, "k": 2.0}.get(part, 1.5) / np.sqrt(num_in))
