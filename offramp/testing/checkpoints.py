"""Small Llama checkpoints for tests, written as safetensors directories or GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import (
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.families import FAMILIES, tensor_name
from offramp.model.quantize import dequantize
from offramp.model.rope import default_yarn_attention, llama3_divisors
from offramp.model.tensors import WeightSource, is_vector
from offramp.model.weights import half_split_order

if TYPE_CHECKING:
    from gguf import GGUFWriter

RoleWeights = Mapping[str, NDArray[np.float32]]
"""Role -> values in half-split rope order, vectors [features] and matrices [out, in]."""


GgufValue = bool | int | float | str | list[str] | list[int] | list[float]


def role_values(source: WeightSource) -> dict[str, NDArray[np.float32]]:
    """Every weight of a source (for example `toy_source`) as f32, by role."""
    return {role: _values(source, role) for role in source.roles()}


def _values(source: WeightSource, role: str) -> NDArray[np.float32]:
    return source.vector(role) if is_vector(role) else dequantize(source.matrix(role))


def write_safetensors_checkpoint(
    directory: Path,
    config: ModelConfig,
    weights: RoleWeights,
    *,
    dtype: str = "F32",
    num_shards: int = 1,
    config_fields: Mapping[str, object] | None = None,
    json_files: Mapping[str, object] | None = None,
) -> Path:
    """Write config.json and weights (F32, F16 or BF16), and `json_files` by name; returns the directory.

    `config_fields` override config.json's; a value of None removes the field.
    """
    directory.mkdir(parents=True, exist_ok=True)
    fields = {**hf_config(config), **(config_fields or {})}
    files = {"config.json": {k: v for k, v in fields.items() if v is not None}, **(json_files or {})}
    names = FAMILIES[config.family].hf_names
    tensors = {tensor_name(names, role): values for role, values in weights.items()}
    if num_shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, dtype)
    else:
        shards = [f"model-{i + 1:05}-of-{num_shards:05}.safetensors" for i in range(num_shards)]
        places = {name: shards[i % num_shards] for i, name in enumerate(tensors)}
        for shard in shards:
            write_safetensors(directory / shard, {n: t for n, t in tensors.items() if places[n] == shard}, dtype)
        files["model.safetensors.index.json"] = {"metadata": {}, "weight_map": places}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return directory


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float32]], dtype: str = "F32") -> None:
    """One safetensors file of F32, F16 or BF16 values."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    chunks: list[bytes] = []
    at = 0
    for name, values in tensors.items():
        chunks.append(encode_floats(values, dtype))
        end = at + len(chunks[-1])
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def encode_floats(values: NDArray[np.float32], dtype: str) -> bytes:
    """Little-endian F32, F16 or BF16 (rounded to nearest even) bytes."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return values.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def hf_config(config: ModelConfig) -> dict[str, object]:
    """The `config.json` fields of a Llama config."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
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
        case _:
            raise ValueError("config.json has no field for frequency divisors; use Llama3Scaling")


def write_gguf(
    path: Path,
    config: ModelConfig,
    weights: RoleWeights,
    *,
    matrix_type: str = "F32",
    types: Mapping[str, str] | None = None,
    metadata: Mapping[str, GgufValue] | None = None,
) -> Path:
    """Write a Llama GGUF file the way llama.cpp's converter does: q and k rows interleaved, llama3 scaling as divisors.

    Matrices get `matrix_type`, or their own entry in `types` by role; vectors are F32. `metadata` overrides keys.
    """
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    family = FAMILIES[config.family]
    writer = GGUFWriter(path, "llama")
    for key, value in {**gguf_config(config), **(metadata or {})}.items():
        _add_value(writer, key, value)
    for role, values in weights.items():
        kind = GGMLQuantizationType["F32" if is_vector(role) else (types or {}).get(role, matrix_type)]
        if role.rpartition(".")[2] in family.gguf_interleaved:
            values = interleave(values, config)
        writer.add_tensor(tensor_name(family.gguf_names, role), quantize(values, kind), raw_dtype=kind)
    if isinstance(config.rope.scaling, Llama3Scaling):
        exponents = np.arange(0, config.rope.rotary_dim, 2) / config.rope.rotary_dim
        divisors = llama3_divisors(config.rope.base**-exponents, config.rope.scaling)
        writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleave(values: NDArray[np.float32], config: ModelConfig) -> NDArray[np.float32]:
    """Rows from half-split to GGUF's neighbouring rope pairs."""
    order = half_split_order(len(values) // config.head_dim, config.head_dim, config.rope.rotary_dim)
    result = np.empty_like(values)
    result[order] = values
    return result


def gguf_config(config: ModelConfig) -> dict[str, GgufValue]:
    """The metadata of a Llama config."""
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
    }
    scaling = config.rope.scaling
    if isinstance(scaling, LinearScaling):
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
    if isinstance(scaling, YarnScaling):
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": scaling.factor,
            "rope.scaling.original_context_length": scaling.original_context,
            "rope.scaling.attn_factor": scaling.attention_factor / default_yarn_attention(scaling.factor),
            "rope.scaling.yarn_beta_fast": scaling.beta_fast,
            "rope.scaling.yarn_beta_slow": scaling.beta_slow,
        }
    return {f"llama.{key}": value for key, value in values.items()}


def _add_value(writer: GGUFWriter, key: str, value: GgufValue) -> None:
    """Integers as u32 and floats as f32, as converters write them."""
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
