"""What the config of every pack begins with: its format, and the model that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from offramp.errors import CorruptModelError, InvalidRequestError
from offramp.model.config import ModelConfig
from offramp.model.metadata import Fields

SHA256 = re.compile("[0-9a-f]{64}")

T = TypeVar("T")


class PackHeader(Protocol):
    """What the config of a pack says of its model, besides that model's shape."""

    @property
    def model(self) -> str: ...

    @property
    def model_name(self) -> str: ...


def check_header(content: Fields, fmt: str, version: int, fields: Collection[str], *, again: str = "") -> None:
    """Raise CorruptModelError for another format or version, and for a field that is none of those.

    `again` ends the hint for another version.
    """
    if content.text("format") != fmt:
        raise content.error("format", f"{fmt!r}: this is another kind of folder")
    if content.integer("version") != version:
        raise content.error("version", f"{version}; another version of offramp wrote the pack{again}")
    known = {"format", "version", *fields}
    unknown = sorted(content.values.keys() - known)
    if unknown:
        raise CorruptModelError(
            f"{content.where}: unknown field {unknown[0]!r}", hint=f"known fields: {', '.join(sorted(known))}"
        )


def model_hash(content: Fields, name: str = "model") -> str:
    """The field of that name."""
    model = content.text(name)
    if not SHA256.fullmatch(model):
        raise content.error(name, "the hash of a model's tensors, 64 hexadecimal digits")
    return model


def choice(content: Fields, name: str, known: Mapping[str, T]) -> T:
    """A field that holds one of some names."""
    value = content.text(name)
    if value not in known:
        raise content.error(name, " or ".join(known))
    return known[value]


def check_belongs(
    own: PackHeader,
    *,
    found_hash: str,
    found: ModelConfig,
    shape: Collection[str],
    pack: str,
    belongs: str = "belongs to",
    hint: str,
    param: str,
) -> None:
    """Check that a pack belongs to the model with that hash of its source tensors, and fits its shape.

    `pack` names it. Raises InvalidRequestError for a pack of another model, naming both, CorruptModelError for one that
    lies about it.
    """
    if own.model != found_hash:
        raise InvalidRequestError(
            f"{pack} {belongs} {own.model_name} with the tensor hash {own.model}, the model loaded has {found_hash}",
            hint=hint,
            param=param,
        )
    for field in shape:
        said, real = getattr(own, field), getattr(found, field)
        if said != real:
            raise CorruptModelError(
                f"{pack} says {field}={said}, the model has {real}",
                hint="its config.json was changed; fetch or train the pack again",
            )
