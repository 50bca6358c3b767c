"""What a drafter pack says of itself: `config.json`, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from offramp.model.metadata import Fields
from offramp.model.pack_header import check_header, choice, model_hash

FORMAT, VERSION = "offramp-drafter", 1

Kind = Literal["eagle"]
"""A side layer over the target's hidden states."""

KINDS: Mapping[str, Kind] = {"eagle": "eagle"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """The model that a drafter pack belongs to, and the shape of what it holds."""

    model: str  # hash of the model's source tensors
    model_name: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    kind: Kind = "eagle"
    taps: tuple[int, ...]  # depths whose hidden states it sees, rising, each in 1..num_layers
    width: int  # of its MLP
    window: int  # places that its attention looks back
    vocabulary: int  # tokens that it drafts
    provenance: Mapping[str, object] = field(default_factory=dict)  # data, licence, seed, steps, figures

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal config."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            "format": FORMAT,
            "version": VERSION,
            **values,
            "taps": list(self.taps),
            "provenance": dict(self.provenance),
        }

    @staticmethod
    def read(content: Fields) -> DrafterConfig:
        """From JSON. Raises CorruptModelError naming the field."""
        check_header(content, FORMAT, VERSION, DrafterConfig.__dataclass_fields__)
        num_layers, vocab_size = content.integer("num_layers"), content.integer("vocab_size")
        provenance = content.group("provenance")
        return DrafterConfig(
            model=model_hash(content),
            model_name=content.text("model_name"),
            num_layers=num_layers,
            hidden_size=content.integer("hidden_size"),
            vocab_size=vocab_size,
            num_heads=content.integer("num_heads"),
            num_kv_heads=content.integer("num_kv_heads"),
            head_dim=content.integer("head_dim"),
            kind=choice(content, "kind", KINDS),
            taps=_taps(content, num_layers),
            width=content.integer("width"),
            window=content.integer("window"),
            vocabulary=content.integer("vocabulary", high=vocab_size),
            provenance=provenance.values if provenance else {},
        )


def _taps(content: Fields, num_layers: int) -> tuple[int, ...]:
    taps = content.values.get("taps")
    wanted = f"a rising list of depths in 1..{num_layers}"
    if not isinstance(taps, list) or not taps or any(type(tap) is not int for tap in taps):
        raise content.error("taps", wanted)
    if not all(1 <= tap <= num_layers for tap in taps) or not all(a < b for a, b in pairwise(taps)):
        raise content.error("taps", wanted)
    return tuple(taps)
