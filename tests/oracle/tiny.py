"""Tiny Llama configs in Hugging Face terms: what may go wrong in shapes and rope, one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}


def rope(kind: str, **values: object) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}, "head_dim": 16, "hidden_size": 64}


OVERRIDES: dict[str, dict[str, Any]] = {
    "gqa-tied": {},
    "gqa-untied": {"tie_word_embeddings": False},
    "mha": {"num_key_value_heads": 4, "tie_word_embeddings": False},
    "one-kv-head": {"num_key_value_heads": 1, "num_hidden_layers": 2},
    "head-dim-apart": {"hidden_size": 42, "head_dim": 16, "num_attention_heads": 6, "num_key_value_heads": 3},
    "odd-sizes": {
        "vocab_size": 77,
        "hidden_size": 39,
        "intermediate_size": 51,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 10,
    },
    "large-eps": {"rms_norm_eps": 0.1, "num_hidden_layers": 2},
    "rope-base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "rope-linear": rope("linear", factor=4.0),
    "rope-llama3": rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
    ),
    "rope-yarn": rope("yarn", factor=4.0, original_max_position_embeddings=64),
    "rope-yarn-tuned": rope(
        "yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=2.0, attention_factor=1.3
    ),
}

NUM_TOKENS = 80
POSITIONS = np.array([0, 1, 31, 32, 50, 79])
"""Positions whose logits are recorded: both sides of a page's end, and the last."""


def config_values(name: str) -> dict[str, Any]:
    """The contents of `config.json` of one case."""
    return {**BASE, **OVERRIDES[name]}


def seed_of(name: str) -> int:
    """The seed of one case's weights and tokens."""
    return 100 + list(OVERRIDES).index(name)


def tokens_of(name: str) -> list[int]:
    vocab = config_values(name)["vocab_size"]
    return [int(i) for i in np.random.default_rng(seed_of(name)).integers(vocab, size=NUM_TOKENS)]
