"""A converted model: a folder that runs without its source, on any machine of the same version of offramp.

offramp.json          what the model is: config, generation defaults, its source's hash, where each tensor lies
weights.offw          the packed weights (prepared_file.py)
tokenizer.gguf.json   what a GGUF file says of its tokenizer and chat template; or, of a model directory,
tokenizer.json, ...   its files besides the weights, as they are
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError, UnsupportedModelError
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.config import ModelConfig
from offramp.model.directory import with_templates
from offramp.model.generation import GenerationDefaults
from offramp.model.gguf import MetadataValue
from offramp.model.metadata import Fields, read_json
from offramp.model.plain import from_plain
from offramp.model.tensors import WeightFormat
from offramp.model.weights import held_format
from offramp.native.prepared_file import LAYOUT_VERSION, DamagedFileError, PreparedWeights

FORM_VERSION = 1  # of the folder; that of the weights is LAYOUT_VERSION
DESCRIPTION, WEIGHTS = "offramp.json", "weights.offw"
GGUF_TOKENIZER, TOKENIZER = "tokenizer.gguf.json", "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedModel:
    """An opened folder, checked as a whole; the weights hold every tensor that the config calls for."""

    path: Path
    config: ModelConfig
    generation: GenerationDefaults
    tokenizer_source: Mapping[str, MetadataValue] | Path  # as a checkpoint's
    source: str  # what it was converted from
    source_hash: str  # of the source's tensors
    fmt: WeightFormat  # as it was asked for

    @property
    def weights_path(self) -> Path:
        return self.path / WEIGHTS

    def weights(self, config: ModelConfig) -> PreparedWeights:
        """The weights; `config` may be the model's own for another context."""
        return PreparedWeights(config, self.weights_path)

    def check_gives(self, fmt: WeightFormat) -> None:
        """Raise InvalidRequestError unless the weights are those that the source gives in this format."""
        weights = self.weights(self.config)
        held = weights.matrix_formats
        if fmt == "auto" or fmt == self.fmt or all(have == held_format(fmt, role) for role, have in held.items()):
            return
        counts = ", ".join(f"{count} matrices of {name}" for name, count in weights.formats.items())
        raise InvalidRequestError(
            f"weights={fmt!r} can't be had from {self.path}: it was converted to {counts}",
            hint=f"leave the format out, or convert {self.source} again with --weights {fmt}",
            param="weights",
        )


OpenedModel = Checkpoint | ConvertedModel


def open_model(path: Path) -> OpenedModel:
    """Open a checkpoint (`open_checkpoint`) or a converted model. Raises a ModelError; reads no weights."""
    if (path / DESCRIPTION).is_file():
        return open_converted(path)
    if path.is_file() and path.name in (DESCRIPTION, WEIGHTS):
        raise ModelNotFoundError(f"{path} is part of a converted model", hint=f"give its folder, {path.parent}")
    return open_checkpoint(path)


def open_converted(path: Path) -> ConvertedModel:
    """Open a folder that `convert` wrote. Raises CorruptModelError, or UnsupportedModelError for a version."""
    fields = read_json(path / DESCRIPTION)
    _check_version(path, fields)
    try:
        config = from_plain(ModelConfig, fields.values.get("config"))
        generation = from_plain(GenerationDefaults, fields.values.get("generation"))
    except ValueError as error:
        raise _damaged(path, f"{DESCRIPTION}: {error}") from error
    formats: tuple[WeightFormat, ...] = get_args(WeightFormat)
    fmt = next((known for known in formats if known == fields.text("weights")), None)
    if fmt is None:
        raise fields.error("weights", f"one of {', '.join(formats)}")
    model = ConvertedModel(
        path=path,
        config=config,
        generation=generation,
        tokenizer_source=_tokenizer_source(path, fields),
        source=fields.text("source"),
        source_hash=fields.text("source_hash"),
        fmt=fmt,
    )
    _check_weights(model, fields)
    return model


def tensor_places(weights: PreparedWeights) -> dict[str, list[int]]:
    """Offset and bytes of each tensor in the file of weights."""
    return {role: [entry.offset, entry.num_bytes] for role, entry in weights.entries.items()}


def _tokenizer_source(path: Path, fields: Fields) -> Mapping[str, MetadataValue] | Path:
    name = fields.text("tokenizer")
    if name not in (GGUF_TOKENIZER, TOKENIZER):
        raise fields.error("tokenizer", f"{GGUF_TOKENIZER} or {TOKENIZER}")
    if not (path / name).is_file():
        raise _damaged(path, f"{name} is missing")
    if name == TOKENIZER:
        return path
    return with_templates(read_json(path / name).values, path)  # type: ignore[arg-type]


def _check_version(path: Path, fields: Fields) -> None:
    form, layout = fields.integer("form", low=0), fields.integer("layout", low=0)
    if (form, layout) != (FORM_VERSION, LAYOUT_VERSION):
        raise UnsupportedModelError(
            f"{path} was converted by offramp {fields.text('offramp')} in form {form}.{layout}, "
            f"and this version runs {FORM_VERSION}.{LAYOUT_VERSION}",
            hint=f"make it anew: offramp convert {fields.text('source')} -o FOLDER",
        )


def _check_weights(model: ConvertedModel, fields: Fields) -> None:
    """The weights are all there, and those that the description is about."""
    file = model.weights_path
    if not file.is_file():
        raise _damaged(model.path, f"{WEIGHTS} is missing")
    size, expected = file.stat().st_size, fields.integer("num_bytes", high=2**63 - 1)
    if size != expected:
        raise _damaged(model.path, f"{WEIGHTS} has {size} bytes of {expected}{_first_cut(fields, size)}")
    try:
        weights = model.weights(model.config)
    except DamagedFileError as error:
        raise _damaged(model.path, f"{WEIGHTS}: {error}") from error
    if weights.source_hash != model.source_hash or tensor_places(weights) != fields.values.get("tensors"):
        raise _damaged(model.path, f"{WEIGHTS} and {DESCRIPTION} are of different models")


def _first_cut(fields: Fields, size: int) -> str:
    """The first tensor that lacks bytes, for an error."""
    places = fields.group("tensors")
    for role in places.values if places else ():
        assert places is not None
        offset, num_bytes = (*places.numbers(role), 0, 0)[:2]
        if offset + num_bytes > size:
            present = max(0, size - int(offset))
            return f": tensor {role!r} needs {num_bytes:.0f} at offset {offset:.0f}, and {present} are present"
    return ""


def _damaged(path: Path, reason: str) -> CorruptModelError:
    return CorruptModelError(f"{path}: {reason}", hint="copy the folder again, or convert the model again")
