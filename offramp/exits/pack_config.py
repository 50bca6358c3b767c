"""What an exit pack says of itself: `config.json`, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from offramp.model.metadata import Fields
from offramp.model.pack_header import check_header, choice, model_hash

FORMAT, VERSION = "offramp-exits", 1

Kind = Literal["shared", "adapter"]
"""Heads without weights of their own (the model's norm and LM head), or a norm and a low-rank adapter at each exit."""

PredictorKind = Literal["linear", "mlp"]

KINDS: Mapping[str, Kind] = {"shared": "shared", "adapter": "adapter"}
PREDICTORS: Mapping[str, PredictorKind] = {"linear": "linear", "mlp": "mlp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackConfig:
    """The model that a pack belongs to, and what it holds for each exit point."""

    model: str  # hash of the model's source tensors
    model_name: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    kind: Kind
    layers: tuple[int, ...]  # exit points, ascending, each in 1..num_layers-1
    rank: int | None = None  # of the adapters
    vocabulary: int | tuple[int, ...] | None = None  # tokens that the heads know, or each of them; None: all
    predictors: PredictorKind | None = None
    provenance: Mapping[str, object] = field(default_factory=dict)  # data, licence, seed, steps, figures

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal config."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "model_name": self.model_name,
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "vocab_size": self.vocab_size,
            "kind": self.kind,
            "layers": list(self.layers),
            "rank": self.rank,
            "vocabulary": list(self.vocabulary) if isinstance(self.vocabulary, tuple) else self.vocabulary,
            "predictors": self.predictors,
            "provenance": dict(self.provenance),
        }

    @staticmethod
    def read(content: Fields) -> PackConfig:
        """From JSON. Raises CorruptModelError naming the field."""
        check_header(content, FORMAT, VERSION, PackConfig.__dataclass_fields__)
        num_layers, vocab_size = content.integer("num_layers"), content.integer("vocab_size")
        kind = choice(content, "kind", KINDS)
        if kind == "shared" and content.has("rank"):
            raise content.error("rank", "null, as heads of kind 'shared' have no adapter")
        layers, provenance = _layers(content, num_layers), content.group("provenance")
        return PackConfig(
            model=model_hash(content),
            model_name=content.text("model_name"),
            num_layers=num_layers,
            hidden_size=content.integer("hidden_size"),
            vocab_size=vocab_size,
            kind=kind,
            layers=layers,
            rank=content.integer("rank") if kind == "adapter" else None,
            vocabulary=_vocabulary(content, len(layers), vocab_size),
            predictors=choice(content, "predictors", PREDICTORS) if content.has("predictors") else None,
            provenance=provenance.values if provenance else {},
        )


def _layers(content: Fields, num_layers: int) -> tuple[int, ...]:
    wanted = f"a rising list of exit points in 1..{num_layers - 1}"
    layers = content.values.get("layers")
    if not isinstance(layers, list) or not layers or any(type(layer) is not int for layer in layers):
        raise content.error("layers", wanted)
    if not all(1 <= layer < num_layers for layer in layers) or not all(a < b for a, b in pairwise(layers)):
        raise content.error("layers", wanted)
    return tuple(layers)


def _vocabulary(content: Fields, num_exits: int, vocab_size: int) -> int | tuple[int, ...] | None:
    sizes = content.values.get("vocabulary")
    if not isinstance(sizes, list):
        return content.integer("vocabulary", high=vocab_size) if content.has("vocabulary") else None
    if len(sizes) != num_exits or any(type(size) is not int or not 1 <= size <= vocab_size for size in sizes):
        raise content.error("vocabulary", f"a number in 1..{vocab_size}, or a list of {num_exits} such numbers")
    return tuple(sizes)
