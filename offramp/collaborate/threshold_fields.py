"""A threshold's calibration as JSON values, checked field by field when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from offramp.collaborate.threshold import CertifiedThreshold
from offramp.errors import CorruptModelError
from offramp.model.metadata import Fields


def certified_fields(entries: Sequence[CertifiedThreshold]) -> list[dict[str, float]]:
    """`read_certified` gives equal entries."""
    return [asdict(each) for each in entries]


def read_certified(content: Fields, name: str = "certified") -> tuple[CertifiedThreshold, ...]:
    """A list of entries. Raises CorruptModelError naming the field."""
    values = content.values.get(name)
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise content.error(name, "a list of objects")
    return tuple(_entry(Fields(each, f"{content.where}: {name}[{n}]")) for n, each in enumerate(values))


def _entry(content: Fields) -> CertifiedThreshold:
    known = {each.name for each in fields(CertifiedThreshold)}
    unknown = sorted(content.values.keys() - known)
    if unknown:
        raise CorruptModelError(f"{content.where}: unknown field {unknown[0]!r}", hint=f"known: {', '.join(known)}")
    delta = _inside(content, "delta")
    return CertifiedThreshold(
        risk=_inside(content, "risk"),
        delta=delta,
        threshold=content.number("threshold", low=0.0, high=1.0),
        big_share=content.number("big_share", low=0.0, high=1.0),
        num_prompts=content.integer("num_prompts"),
        mean_loss=content.number("mean_loss", low=0.0, high=1.0),
        p_value=content.number("p_value", low=0.0, high=delta),  # above delta nothing was certified
    )


def _inside(content: Fields, name: str) -> float:
    """A number in (0, 1)."""
    value = content.number(name)
    if not 0 < value < 1:
        raise content.error(name, "a number in (0, 1)")
    return value
