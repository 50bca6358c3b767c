"""What the config of every pack begins with: its format, and the model that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from offramp.errors import CorruptModelError
from offramp.model.metadata import Fields

SHA256 = re.compile("[0-9a-f]{64}")

T = TypeVar("T")


def check_header(content: Fields, fmt: str, version: int, fields: Collection[str]) -> None:
    """Raise CorruptModelError for another format or version, and for a field that is none of those."""
    if content.text("format") != fmt:
        raise content.error("format", f"{fmt!r}: this is another kind of folder")
    if content.integer("version") != version:
        raise content.error("version", f"{version}; another version of offramp wrote the pack")
    known = {"format", "version", *fields}
    unknown = sorted(content.values.keys() - known)
    if unknown:
        raise CorruptModelError(
            f"{content.where}: unknown field {unknown[0]!r}", hint=f"known fields: {', '.join(sorted(known))}"
        )


def model_hash(content: Fields) -> str:
    """The field `model`."""
    model = content.text("model")
    if not SHA256.fullmatch(model):
        raise content.error("model", "the hash of a model's tensors, 64 hexadecimal digits")
    return model


def choice(content: Fields, name: str, known: Mapping[str, T]) -> T:
    """A field that holds one of some names."""
    value = content.text(name)
    if value not in known:
        raise content.error(name, " or ".join(known))
    return known[value]
