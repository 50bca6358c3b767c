"""Writing a model as an ordinary Hugging Face directory: config, weights in f16, tokenizer, chat template."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offramp.errors import NumericError, ResourceError, UnsupportedModelError
from offramp.model.checkpoint import Checkpoint
from offramp.model.config import ModelConfig
from offramp.model.directory import copy_texts
from offramp.model.families import FAMILIES, tensor_name
from offramp.model.generation import GenerationDefaults
from offramp.model.tensors import is_norm
from offramp.model.tokenizer_gguf import read_gguf_tokenizer

GGUF_TEMPLATE = "tokenizer.chat_template"
PLAIN_FAMILIES = {"llama": "silu", "qwen2": "silu", "qwen3": "silu"}
"""Families that `config.json` describes in full without windows or rope scaling, and their activation there."""

RoleWeights = Iterable[tuple[str, NDArray[np.float32]]]
NO_FILES: Mapping[str, str] = {}


def check_writable(checkpoint: Checkpoint, directory: Path) -> None:
    """Raise OfframpError where `write_directory` would, before anything is trained."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ResourceError(f"{directory} exists already", hint="name a folder that is not there yet")
    if checkpoint.kind == "gguf":
        _config_fields(checkpoint.config, checkpoint.generation)


def write_directory(
    checkpoint: Checkpoint, weights: RoleWeights, directory: Path, *, files: Mapping[str, str] = NO_FILES
) -> None:
    """`checkpoint` with other weights, whole or not at all. `files`, text by name, go in place of its own.

    Raises NumericError for values beyond f16, ResourceError where it can't be written.
    """
    from safetensors import SafetensorError

    try:
        _write_directory(checkpoint, weights, directory, files)
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"can't write the model {directory}: {getattr(error, 'strerror', None) or error}",
            hint="check the folder and the disk",
        ) from error


def _write_directory(checkpoint: Checkpoint, weights: RoleWeights, directory: Path, files: Mapping[str, str]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".partial", dir=directory.parent))
    try:
        partial.chmod(0o755)
        _write_weights(checkpoint.config, weights, partial / "model.safetensors")
        if isinstance(checkpoint.tokenizer_source, Path):
            copy_texts(checkpoint.tokenizer_source, partial)
        else:
            _write_texts(checkpoint, checkpoint.tokenizer_source, partial)
        for name, text in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_text(text, encoding="utf-8")
        if directory.exists():
            directory.rmdir()  # empty
        partial.replace(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_weights(config: ModelConfig, weights: RoleWeights, path: Path) -> None:
    from safetensors.numpy import save_file

    family = FAMILIES[config.family]
    parts: dict[str, list[NDArray[np.float16]]] = {}
    for role, values in weights:
        stored = values - np.float32(family.hf_norm_offset) if is_norm(role) else values
        with np.errstate(over="ignore"):
            halves = stored.astype(np.float16)
        if not np.isfinite(halves).all():
            raise NumericError(f"{role} holds values beyond f16", hint="training has diverged: lower --learning-rate")
        parts.setdefault(tensor_name(family.hf_names, role), []).append(halves)
    tensors = {name: np.concatenate(some) for name, some in parts.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def _write_texts(checkpoint: Checkpoint, metadata: Mapping[str, object], directory: Path) -> None:
    """What a GGUF file's metadata says, in the files of a directory."""
    backend, vocabulary = read_gguf_tokenizer(metadata, str(checkpoint.path))
    backend.save(str(directory / "tokenizer.json"))

    def text(token_id: int | None) -> str | None:
        return None if token_id is None else backend.id_to_token(token_id)

    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": text(vocabulary.bos_token_id),
        "eos_token": text(next(iter(vocabulary.eos_token_ids), None)),
        "add_bos_token": vocabulary.add_bos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": checkpoint.config.max_context,
    }
    _write_json(directory / "tokenizer_config.json", about)
    ends = dict.fromkeys((*vocabulary.eos_token_ids, *checkpoint.generation.eos_token_ids))
    generation = replace(checkpoint.generation, eos_token_ids=tuple(ends))
    _write_json(directory / "config.json", _config_fields(checkpoint.config, generation))
    _write_json(directory / "generation_config.json", _generation_fields(generation))
    for key, template in metadata.items():
        if key == GGUF_TEMPLATE:
            (directory / "chat_template.jinja").write_text(str(template), encoding="utf-8")
        elif key.startswith(f"{GGUF_TEMPLATE}."):
            others = directory / "additional_chat_templates"
            others.mkdir(exist_ok=True)
            name = key.removeprefix(f"{GGUF_TEMPLATE}.")
            (others / f"{name}.jinja").write_text(str(template), encoding="utf-8")


def _config_fields(config: ModelConfig, generation: GenerationDefaults) -> dict[str, object]:
    """`config.json` of a plain model. Raises UnsupportedModelError for others."""
    plain = config.family in PLAIN_FAMILIES and config.rope.scaling is None and not config.attention
    if not plain or config.rope.rotary_dim != config.head_dim:
        raise UnsupportedModelError(
            f"a GGUF model of family {config.family} with its rope and windows can't be written as a directory",
            hint="train from the model's Hugging Face directory instead",
        )
    return {
        "architectures": list(FAMILIES[config.family].hf_architectures[:1]),
        "model_type": config.family,
        "hidden_act": PLAIN_FAMILIES[config.family],
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.base,
        "max_position_embeddings": config.max_context,
        "tie_word_embeddings": config.tie_embeddings,
        "eos_token_id": list(generation.eos_token_ids),
        "torch_dtype": "float16",
    }


def _generation_fields(generation: GenerationDefaults) -> dict[str, object]:
    values = {
        "eos_token_id": list(generation.eos_token_ids),
        "bos_token_id": generation.bos_token_id,
        "do_sample": generation.do_sample,
        "temperature": generation.temperature,
        "top_k": generation.top_k,
        "top_p": generation.top_p,
        "min_p": generation.min_p,
        "repetition_penalty": generation.repetition_penalty,
    }
    return {name: value for name, value in values.items() if value is not None}


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    content = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
