"""A checkpoint on disk, opened and checked as a whole before anything is served."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal

from offramp.errors import CorruptModelError, ModelNotFoundError
from offramp.model.config import ModelConfig
from offramp.model.config_gguf import config_from_gguf, gguf_fields
from offramp.model.config_hf import config_from_hf
from offramp.model.directory import with_templates
from offramp.model.families import FAMILIES, check_leftovers, gguf_names, tensor_name, tensor_names
from offramp.model.generation import GenerationDefaults, generation_from_gguf, generation_from_hf
from offramp.model.gguf import MetadataValue, read_gguf
from offramp.model.metadata import read_json
from offramp.model.safetensors import PICKLES, has_safetensors, pickle_refused, read_safetensors
from offramp.model.stored import StoredTensor, check_decodable
from offramp.model.tensors import WeightFormat, role_shape
from offramp.model.weights import StoredWeights, log_foreign_types

log = logging.getLogger("offramp")

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_KEYS = ("tokenizer.", "general.architecture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An opened model; every tensor the config calls for is present, of the right shape and of a readable type."""

    path: Path  # the GGUF file, or the directory
    kind: Literal["gguf", "safetensors"]
    config: ModelConfig
    generation: GenerationDefaults
    tokenizer_source: Mapping[str, MetadataValue] | Path  # GGUF's metadata about it, or the directory
    tensors: Mapping[str, StoredTensor]  # every tensor of the checkpoint, by its own name
    roles: Mapping[str, StoredTensor]  # those the model uses, by role

    def tell_conversions(self) -> None:
        """Log the stored types that are converted on the way."""
        log_foreign_types(self.roles, self.path.name)

    def weights(self, fmt: WeightFormat = "auto", *, tell: bool = True) -> StoredWeights:
        """The weights in canonical formats, converted one tensor at a time on demand; `tell` what that changes, too."""
        if tell:
            self.tell_conversions()
        family = FAMILIES[self.config.family]
        if self.kind == "gguf":
            return StoredWeights(self.config, self.roles, fmt, interleaved=family.gguf_interleaved)
        return StoredWeights(self.config, self.roles, fmt, norm_offset=family.hf_norm_offset)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files on disk that the weights and the config come from."""
        if self.kind == "gguf":
            return (self.path,)
        return (self.path / CONFIG_FILE, *sorted(self.path.glob("*.safetensors")))

    def source_hash(self) -> str:
        """sha256, in hex, of all source tensors: names, types, shapes and raw bytes. Reads the whole checkpoint."""
        digest = hashlib.sha256()
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            digest.update(f"{name}\0{tensor.dtype}\0{tensor.shape}\0{tensor.data.size}\n".encode())
            digest.update(tensor.data.data)
        return digest.hexdigest()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file, a directory of config.json and safetensors, or a directory that holds one GGUF file instead.

    Raises ModelNotFoundError, CorruptModelError or UnsupportedModelError. Reads headers only.
    """
    if path.is_dir():
        return _open_directory(path)
    if not path.exists():
        raise ModelNotFoundError(f"no such file or directory: {path}", hint="check the path")
    if path.suffix in PICKLES:
        raise pickle_refused(f"{path} is a pickle")
    if path.suffix == ".safetensors":
        raise ModelNotFoundError(
            f"{path} is a single weight file without a config", hint=f"give its directory, with {CONFIG_FILE}"
        )
    return _open_gguf(path)


def _open_directory(path: Path) -> Checkpoint:
    files = sorted(path.glob("*.gguf"))
    if (path / CONFIG_FILE).exists() and (has_safetensors(path) or not files):
        return _open_safetensors(path)
    if len(files) == 1:
        found = _open_gguf(files[0])
        assert not isinstance(found.tokenizer_source, Path)
        return replace(found, tokenizer_source=with_templates(found.tokenizer_source, path))
    if files:
        names = ", ".join(file.name for file in files[:3])
        raise ModelNotFoundError(f"{path} holds {len(files)} GGUF files: {names}", hint="name one of them")
    raise ModelNotFoundError(f"{path} holds no model", hint=f"expected {CONFIG_FILE} with safetensors, or a .gguf file")


def _open_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    config = config_from_gguf(file)
    family, fields = FAMILIES[config.family], gguf_fields(file)
    names = gguf_names(family, file.tensors)
    return Checkpoint(
        path=path,
        kind="gguf",
        config=config,
        generation=generation_from_gguf(fields, config.vocab_size),
        tokenizer_source={k: v for k, v in file.metadata.items() if k.startswith(TOKENIZER_KEYS)},
        tensors=file.tensors,
        roles=_assign(file.tensors, names, config, family.gguf_ignored),
    )


def _open_safetensors(path: Path) -> Checkpoint:
    fields = read_json(path / CONFIG_FILE)
    tensors = read_safetensors(path)
    config, names = _heads(config_from_hf(fields), tensors, path)
    ignored = FAMILIES[config.family].hf_ignored
    generation = read_json(path / GENERATION_FILE) if (path / GENERATION_FILE).exists() else None
    return Checkpoint(
        path=path,
        kind="safetensors",
        config=config,
        generation=generation_from_hf(fields, generation, config.vocab_size),
        tokenizer_source=path,
        tensors=tensors,
        roles=_assign(tensors, names, config, ignored),
    )


def _heads(
    config: ModelConfig, tensors: Mapping[str, StoredTensor], path: Path
) -> tuple[ModelConfig, Mapping[str, str]]:
    """Config and names where `tie_word_embeddings` meets a checkpoint that holds a head: as transformers takes it.

    A head that differs from the embedding is one of its own; a head alone serves as the embedding too.
    """
    names = FAMILIES[config.family].hf_names
    embedding, head = tensors.get(names["embedding"]), tensors.get(names["lm_head"])
    if not config.tie_embeddings or head is None:
        return config, names
    if embedding is None:
        return config, {**names, "embedding": names["lm_head"]}
    if head.same_values(embedding):
        return config, names
    log.warning("%s: %s differs from the embedding, to which config.json ties it: it counts", path, head.name)
    return replace(config, tie_embeddings=False), names


def _assign(
    tensors: Mapping[str, StoredTensor], names: Mapping[str, str], config: ModelConfig, ignored: Iterable[str]
) -> dict[str, StoredTensor]:
    """Role -> tensor, each checked; a head beside a tied embedding repeats it and is passed over."""
    stacks: dict[str, list[str]] = {}
    for role, name in tensor_names(names, config).items():
        stacks.setdefault(name, []).append(role)
    roles: dict[str, StoredTensor] = {}
    for name, stack in stacks.items():
        roles |= _parts(tensors, name, stack, config)
    used = {tensor.name for tensor in roles.values()} | {tensor_name(names, "lm_head")}
    check_leftovers(tensors, used, tuple(ignored))
    return roles


def _parts(
    tensors: Mapping[str, StoredTensor], name: str, stack: list[str], config: ModelConfig
) -> dict[str, StoredTensor]:
    """The tensor's rows by role, in the order in which the roles are stacked; mostly it has one."""
    if len(stack) == 1:
        return {stack[0]: _checked(tensors, name, stack[0], role_shape(config, stack[0]))}
    heights = [role_shape(config, role)[0] for role in stack]
    tensor = _checked(tensors, name, stack[0], (sum(heights), *role_shape(config, stack[0])[1:]))
    ends = list(accumulate(heights))
    return {role: tensor.part(end - height, end) for role, height, end in zip(stack, heights, ends, strict=True)}


def _checked(tensors: Mapping[str, StoredTensor], name: str, role: str, expected: tuple[int, ...]) -> StoredTensor:
    if name not in tensors:
        hint = "the head is not tied to the embedding" if role == "lm_head" else "fetch the model again"
        raise CorruptModelError(f"tensor {name!r} of shape {list(expected)} is missing", hint=hint)
    tensor = tensors[name]
    if tensor.shape != expected:
        raise CorruptModelError(
            f"tensor {name!r} has shape {list(tensor.shape)}, the config calls for {list(expected)}",
            hint="the config and the weights belong to different models, or the file is damaged",
        )
    check_decodable(tensor)
    return tensor
