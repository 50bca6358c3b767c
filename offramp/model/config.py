"""What a model is, independent of the file it came from: frozen, validated once, read by everyone.

This module is the only reader of Hugging Face and GGUF metadata names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding as data; `offramp/model/rope.py` turns it into frequencies."""

    base: float = 10000.0
    rotary_dim: int  # leading values of a head that rotate; even


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and constants of one decoder-only transformer."""

    family: str  # key in model/families.py, e.g. "llama"
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    rope: RopeConfig
    max_context: int  # positions the model was trained for
    tie_embeddings: bool
