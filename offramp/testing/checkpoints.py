"""Small checkpoints for tests: safetensors directories, and GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from offramp.model.config import Llama3Scaling, LongRopeScaling, ModelConfig
from offramp.model.families import FAMILIES, ROPE_TENSORS, tensor_name
from offramp.model.quantize import dequantize
from offramp.model.rope import llama3_divisors
from offramp.model.tensors import WeightSource, is_norm, is_vector
from offramp.model.weights import half_split_order
from offramp.testing.metadata import GgufValue, gguf_architecture, gguf_config, hf_config

if TYPE_CHECKING:
    from gguf import GGUFWriter

RoleWeights = Mapping[str, NDArray[np.float32]]
"""Role -> values in half-split rope order, vectors [features] and matrices [out, in]."""


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
    tensors = hf_tensors(config, weights)
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


def hf_tensors(config: ModelConfig, weights: RoleWeights) -> dict[str, NDArray[np.float32]]:
    """The weights under the names and in the form of transformers' checkpoints."""
    family = FAMILIES[config.family]
    stored = {role: values - family.hf_norm_offset if is_norm(role) else values for role, values in weights.items()}
    return stacked(family.hf_names, stored)


def stacked(names: Mapping[str, str], weights: RoleWeights) -> dict[str, NDArray[np.float32]]:
    """Tensors by name; roles that share a name are stacked in their order."""
    parts: dict[str, list[NDArray[np.float32]]] = {}
    for role, values in weights.items():
        parts.setdefault(tensor_name(names, role), []).append(values)
    return {name: values[0] if len(values) == 1 else np.concatenate(values) for name, values in parts.items()}


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


def write_gguf(
    path: Path,
    config: ModelConfig,
    weights: RoleWeights,
    *,
    matrix_type: str = "F32",
    types: Mapping[str, str] | None = None,
    metadata: Mapping[str, GgufValue] | None = None,
    names: Mapping[str, str] | None = None,
) -> Path:
    """Write a GGUF file: Llama's q and k rows interleaved, llama3 scaling and longrope as tensors.

    Matrices get `matrix_type`, or their own entry in `types` by role (the first of stacked ones); vectors are F32.
    `metadata` overrides keys, `names` the names of roles.
    """
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    family = FAMILIES[config.family]
    writer = GGUFWriter(path, gguf_architecture(config))
    for key, value in {**gguf_config(config), **(metadata or {})}.items():
        _add_value(writer, key, value)
    names = {**family.gguf_names, **(names or {})}
    roles = {tensor_name(names, role): role for role in reversed(list(weights))}
    filed = {
        role: interleave(values, config) if role.rpartition(".")[2] in family.gguf_interleaved else values
        for role, values in weights.items()
    }
    for name, values in stacked(names, filed).items():
        role = roles[name]
        kind = GGMLQuantizationType["F32" if is_vector(role) else (types or {}).get(role, matrix_type)]
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    for name, divisors in _rope_tensors(config).items():
        writer.add_tensor(name, divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _rope_tensors(config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    rope, (divisors, long, short) = config.rope, ROPE_TENSORS
    match rope.scaling:
        case Llama3Scaling() as llama3:
            exponents = np.arange(0, rope.rotary_dim, 2) / rope.rotary_dim
            return {divisors: llama3_divisors(rope.base**-exponents, llama3).astype(np.float32)}
        case LongRopeScaling() as longrope:
            return {
                long: np.array(longrope.long_divisors, np.float32),
                short: np.array(longrope.short_divisors, np.float32),
            }
        case _:
            return {}


def interleave(values: NDArray[np.float32], config: ModelConfig) -> NDArray[np.float32]:
    """Rows from half-split to GGUF's neighbouring rope pairs."""
    order = half_split_order(len(values) // config.head_dim, config.head_dim, config.rope.rotary_dim)
    result = np.empty_like(values)
    result[order] = values
    return result


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
