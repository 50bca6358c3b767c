"""Tiny configs in Hugging Face terms: what may go wrong in shapes and rope, one at a time, then family by family."""

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


def family(architecture: str, **values: object) -> dict[str, Any]:
    return {"architectures": [architecture], **values}


LONGROPE_FACTORS = {
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0],
    "long_factor": [1.1, 1.7, 2.9, 5.0, 11.0, 31.0],
}
"""For a rotary dimension of 12: three quarters of a head of 16."""

PHI3: dict[str, Any] = {"hidden_size": 64, "head_dim": 16, "tie_word_embeddings": False}

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
    "qwen2": family("Qwen2ForCausalLM", use_sliding_window=False, sliding_window=16, max_window_layers=1),
    "qwen2-window": family(
        "Qwen2ForCausalLM",
        use_sliding_window=True,
        sliding_window=20,
        max_window_layers=1,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    "qwen3": family("Qwen3ForCausalLM", head_dim=20, num_key_value_heads=1),
    "qwen3-window": family(
        "Qwen3ForCausalLM",
        use_sliding_window=True,
        sliding_window=33,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "gemma3": family(
        "Gemma3ForCausalLM",
        num_hidden_layers=7,
        sliding_window=24,
        query_pre_attn_scalar=12,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "gemma3-older": family(
        "Gemma3ForCausalLM",
        num_hidden_layers=4,
        sliding_window=32,
        sliding_window_pattern=2,
        query_pre_attn_scalar=12,
        rope_parameters=None,
        rope_theta=30000.0,
        rope_local_base_freq=500.0,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
    ),
    "gemma3-query-scale": family(
        "Gemma3ForCausalLM",
        sliding_window=10,
        query_pre_attn_scalar=24,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "mistral": family("MistralForCausalLM", sliding_window=33, tie_word_embeddings=False),
    "mistral-no-window": family("MistralForCausalLM", sliding_window=None, num_key_value_heads=4),
    "smollm3": family("SmolLM3ForCausalLM", num_hidden_layers=5),
    "smollm3-window": family(
        "SmolLM3ForCausalLM", no_rope_layers=[1, 0, 0], use_sliding_window=True, sliding_window=10
    ),
    "phi3": family("Phi3ForCausalLM", sliding_window=40, num_key_value_heads=4, **PHI3),
    "phi3-long": family(
        "Phi3ForCausalLM",
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            **LONGROPE_FACTORS,
        },
        original_max_position_embeddings=32,
        **PHI3,
    ),
    "phi3-short": family(
        "Phi3ForCausalLM",
        rope_parameters=None,
        rope_theta=10000.0,
        partial_rotary_factor=0.75,
        rope_scaling={"type": "su", "original_max_position_embeddings": 256, **LONGROPE_FACTORS},
        original_max_position_embeddings=256,
        **PHI3,
    ),
}
"""By name; new ones at the end, as seeds count."""

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
