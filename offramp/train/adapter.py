"""What fine-tuning changed, small enough to keep: low-rank factors in q8 and norms, in one safetensors file.

layers, rank, in and out features as elsewhere; each tensor holds the same thing of all layers:
`{stack}.a.quants` and `.scales` [layers, rank, in], `{stack}.b.*` [layers, rank, out] (b transposed, with its scale),
`norms.{name}` [layers, width], `final_norm` [hidden], `vocab_ids` [ids], most frequent first. The recipe is in the
file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offramp.core import Ids
from offramp.errors import CorruptModelError, InvalidRequestError
from offramp.model.config import ModelConfig
from offramp.model.quantize import dequantize, quantize_q8
from offramp.model.tensors import BLOCK, Q8Matrix, all_roles, is_norm, role_shape
from offramp.train.decoder import STACKS
from offramp.train.low_rank import SCALE
from offramp.whole_file import whole_file

FORMAT = "offramp-adapter"
HINT = "the adapter is damaged; fetch it again or train anew"

Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Changes of one model, as they are stored: what is merged is what is kept."""

    model: str  # hash of the source tensors of the model that was trained
    recipe: Mapping[str, Any]
    figures: Mapping[str, Any]  # steps, minutes, what was measured
    arrays: Arrays
    vocabularies: Mapping[int, int]  # how many of `ranked` each exit knows

    @property
    def ranked(self) -> Ids:
        """Tokens that the exits may know, most frequent first."""
        ids: Ids = self.arrays["vocab_ids"]
        return ids

    def check_model(self, model: str) -> None:
        """Raise InvalidRequestError, naming both hashes, for another model."""
        if model != self.model:
            raise InvalidRequestError(
                f"the adapter belongs to the model {self.model}, not to {model}",
                hint="merge it into the model that it was trained on",
            )

    def change(self, layer: int, stack: str) -> Floats:
        """What is added to the stacked matrix, [out, in]."""
        a, b = (self._factor(f"{stack}.{name}", layer) for name in "ab")
        product: Floats = b.T @ a
        return product

    def norm(self, role: str) -> Floats:
        """The weights of a norm, [width]."""
        if role == "final_norm":
            return self.arrays["final_norm"].astype(np.float32)
        _, layer, name = role.split(".")
        norm: Floats = self.arrays[f"norms.{name}"][int(layer)].astype(np.float32)
        return norm

    def _factor(self, name: str, layer: int) -> Floats:
        quants, scales = self.arrays[f"{name}.quants"][layer], self.arrays[f"{name}.scales"][layer]
        return dequantize(Q8Matrix(quants, scales, quants.shape[1]))


def make_adapter(
    trained: Mapping[str, Tensor], num_layers: int, ranked: Ids, model: str, recipe: Mapping[str, Any]
) -> Adapter:
    """From trained low-rank tensors by name; `model` is the hash of what was trained."""
    values = {name: tensor.detach().numpy() for name, tensor in trained.items()}
    arrays: Arrays = {"vocab_ids": ranked, "final_norm": values["final_norm"].astype(np.float16)}
    for stack in STACKS:
        for name in "ab":
            factors = [values[f"layers.{i}.{stack}.{name}"] for i in range(num_layers)]
            stored = [quantize_q8(a if name == "a" else np.float32(SCALE) * a.T, f"{stack}.{name}") for a in factors]
            arrays[f"{stack}.{name}.quants"] = np.stack([matrix.quants for matrix in stored])
            arrays[f"{stack}.{name}.scales"] = np.stack([matrix.scales for matrix in stored])
    for norm in [name.removeprefix("layers.0.") for name in values if name.startswith("layers.0.")]:
        if norm.endswith("norm"):
            stacked = np.stack([values[f"layers.{i}.{norm}"] for i in range(num_layers)])
            arrays[f"norms.{norm}"] = stacked.astype(np.float16)
    return Adapter(model, recipe, {}, arrays, {})


def write_adapter(path: Path, adapter: Adapter) -> None:
    """Whole or not at all."""
    from safetensors.numpy import save

    vocabularies = {str(layer): size for layer, size in adapter.vocabularies.items()}
    about = {
        "model": adapter.model,
        "recipe": adapter.recipe,
        "figures": adapter.figures,
        "vocabularies": vocabularies,
    }
    with whole_file(path) as file:
        file.write(save(adapter.arrays, metadata={"format": FORMAT, "about": json.dumps(about)}))


def read_adapter(path: Path, config: ModelConfig) -> Adapter:
    """Raises InvalidRequestError for what can't be read, CorruptModelError for what is no adapter of such a model."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InvalidRequestError(f"{path} is no file", hint="give the adapter.safetensors of an earlier training")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise CorruptModelError(f"{path} is no safetensors file: {error}", hint=HINT) from error
    if metadata.get("format") != FORMAT:
        raise CorruptModelError(f"{path} is not an adapter", hint="give the adapter.safetensors of an earlier training")
    adapter = _described(metadata, arrays, path)
    _check_shapes(adapter, config, path)
    _check_ids(adapter, config, path)
    return adapter


def _described(metadata: Mapping[str, str], arrays: Arrays, path: Path) -> Adapter:
    """With what the file says of itself."""
    try:
        about = json.loads(metadata["about"])
        vocabularies = {int(layer): int(size) for layer, size in about["vocabularies"].items()}
        return Adapter(about["model"], dict(about["recipe"]), dict(about["figures"]), arrays, vocabularies)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptModelError(f"{path}: what it says of its training is damaged: {error!r}", hint=HINT) from error


def _check_ids(adapter: Adapter, config: ModelConfig, path: Path) -> None:
    ids = adapter.arrays.get("vocab_ids", np.zeros(0, np.int32))
    if ids.dtype != np.int32 or ids.ndim != 1 or len(np.unique(ids)) != len(ids) or len(ids) == 0:
        raise CorruptModelError(f"{path}: tensor 'vocab_ids' is no list of different tokens", hint=HINT)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise CorruptModelError(
            f"{path}: tensor 'vocab_ids' leaves the vocabulary of {config.vocab_size} tokens", hint=HINT
        )
    sizes, exits = adapter.vocabularies, adapter.recipe.get("exits")
    if sorted(sizes) != exits or any(not 1 <= size <= len(ids) for size in sizes.values()):
        raise CorruptModelError(
            f"{path}: vocabularies {dict(sizes)} don't fit exits {exits} and {len(ids)} tokens",
            hint=HINT,
        )


def _check_shapes(adapter: Adapter, config: ModelConfig, path: Path) -> None:
    rank = adapter.recipe.get("rank")
    wanted: dict[str, tuple[object, ...]] = {"final_norm": (config.hidden_size,)}
    for role in all_roles(config):
        if role.startswith("layers.0.") and is_norm(role):
            wanted[f"norms.{role.rpartition('.')[2]}"] = (config.num_layers, *role_shape(config, role))
    for stack, parts in STACKS.items():
        shapes = [role_shape(config, f"layers.0.{part}") for part in parts]
        for name, width in (("a", shapes[0][1]), ("b", sum(shape[0] for shape in shapes))):
            blocks = -(-width // BLOCK)
            wanted[f"{stack}.{name}.quants"] = (config.num_layers, rank, blocks * BLOCK)
            wanted[f"{stack}.{name}.scales"] = (config.num_layers, rank, blocks)
    for name, shape in wanted.items():
        if name not in adapter.arrays or adapter.arrays[name].shape != shape:
            found = list(adapter.arrays[name].shape) if name in adapter.arrays else "missing"
            raise CorruptModelError(f"{path}: tensor {name!r} is {found}, the model calls for {list(shape)}", hint=HINT)
