"""A ModelConfig as `config.json` and as GGUF metadata: the fields that converters and transformers write."""

from __future__ import annotations

from offramp.model.config import LinearScaling, Llama3Scaling, LongRopeScaling, ModelConfig, RopeScaling, YarnScaling
from offramp.model.families import FAMILIES

GgufValue = bool | int | float | str | list[str] | list[int] | list[float] | list[bool]

HF_ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


def hf_config(config: ModelConfig) -> dict[str, object]:
    """The `config.json` fields of a config."""
    family = FAMILIES[config.family]
    values: dict[str, object] = {
        "architectures": list(family.hf_architectures[:1]),
        "model_type": family.hf_model_type,
        family.hf_activation: HF_ACTIVATIONS[config.form.activation],
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.base,
        "rope_scaling": _hf_scaling(config.rope.scaling),
        "max_position_embeddings": config.max_context,
        "tie_word_embeddings": config.tie_embeddings,
    }
    if family.windows != "none":
        values |= _hf_attention(config)
    if family.partial_rotary:
        values["partial_rotary_factor"] = config.rope.rotary_dim / config.head_dim
    if "query_pre_attn_scalar" in family.hf_defaults:
        values["query_pre_attn_scalar"] = round(config.attention_scale**-2, 6)
    return values


def _hf_attention(config: ModelConfig) -> dict[str, object]:
    """Windows and rotations of the layers."""
    family, layers = FAMILIES[config.family], config.attention
    windows = [layer.window for layer in layers if layer.window]
    values: dict[str, object] = {"sliding_window": windows[0] if windows else None}
    if family.optional_window:
        values["use_sliding_window"] = bool(windows)
    if family.windows != "all" and layers:
        values["layer_types"] = ["sliding_attention" if layer.window else "full_attention" for layer in layers]
    if family.local_rope:
        local = [layer.rope.base for layer in layers if layer.window and layer.rope]
        values["rope_local_base_freq"] = local[0] if local else 10000.0
    if family.unrotated_layers:
        values["no_rope_layers"] = [int(config.attention_of(i).rope is not None) for i in range(config.num_layers)]
    return values


def _hf_scaling(scaling: RopeScaling | None) -> dict[str, object] | None:
    match scaling:
        case None:
            return None
        case LinearScaling(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_context,
            }
        case YarnScaling():
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_context,
                "attention_factor": scaling.attention_factor,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "truncate": scaling.truncate,
            }
        case LongRopeScaling():
            return {
                "rope_type": "longrope",
                "short_factor": list(scaling.short_divisors),
                "long_factor": list(scaling.long_divisors),
                "original_max_position_embeddings": scaling.original_context,
                "attention_factor": scaling.attention_factor,
            }
        case _:
            raise ValueError("config.json has no field for frequency divisors; use Llama3Scaling")


def gguf_architecture(config: ModelConfig) -> str:
    """`general.architecture` of the config's files; what has none of its own is written as a llama."""
    return next(iter(FAMILIES[config.family].gguf_architectures), "llama")


def gguf_config(config: ModelConfig) -> dict[str, GgufValue]:
    """The metadata of a config."""
    values: dict[str, GgufValue] = {
        "block_count": config.num_layers,
        "context_length": config.max_context,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.dimension_count": config.rope.rotary_dim,
        "rope.freq_base": config.rope.base,
        **_gguf_scaling(config.rope.scaling),
        **_gguf_attention(config),
    }
    return {f"{gguf_architecture(config)}.{key}": value for key, value in values.items()}


def _gguf_attention(config: ModelConfig) -> dict[str, GgufValue]:
    """The window, which layers have it where that is not understood, and Gemma's local base."""
    windows = [layer.window for layer in config.attention]
    width = next((window for window in windows if window), None)
    if width is None:
        return {}
    values: dict[str, GgufValue] = {"attention.sliding_window": width}
    family, slides = FAMILIES[config.family], [window is not None for window in windows]
    usual = [(i + 1) % 6 != 0 for i in range(len(slides))] if family.local_rope else [True] * len(slides)
    if slides != usual or family.windows in ("deep", "unrotated"):
        values["attention.sliding_window_pattern"] = slides
    if family.local_rope:
        base = next(layer.rope.base for layer in config.attention if layer.window and layer.rope)
        if base != 10000.0:
            values["rope.freq_base_swa"] = base
    return values


def _gguf_scaling(scaling: RopeScaling | None) -> dict[str, GgufValue]:
    match scaling:
        case LinearScaling():
            return {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
        case YarnScaling():
            return {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": scaling.factor,
                "rope.scaling.original_context_length": scaling.original_context,
                "rope.scaling.yarn_attn_factor": scaling.attention_factor,
                "rope.scaling.yarn_beta_fast": scaling.beta_fast,
                "rope.scaling.yarn_beta_slow": scaling.beta_slow,
            }
        case LongRopeScaling():
            return {
                "rope.scaling.attn_factor": scaling.attention_factor,
                "rope.scaling.original_context_length": scaling.original_context,
            }
        case _:
            return {}
