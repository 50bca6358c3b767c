"""Drafters by name. The oracle tests run over this table, so what is registered is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offramp.core import Drafter
from offramp.errors import InvalidRequestError
from offramp.params import shown

__all__ = ["AUTO", "DRAFTERS", "MAX_NODES", "OFF", "DrafterSettings", "draft_name", "make_drafter"]

OFF = "off"
AUTO = "auto"
MAX_NODES = 16
"""Most draft tokens that a drafter of this table proposes for one sequence in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSettings:
    """What drafters are made from."""

    store_bytes: int = 64 << 20  # for texts learned from one request for others; 0: nothing is learned


def _off(settings: DrafterSettings) -> Drafter:
    from offramp.draft.none import NoDrafter

    return NoDrafter()


def _ngram(settings: DrafterSettings) -> Drafter:
    from offramp.draft.ngram import NgramDrafter

    return NgramDrafter(max_nodes=MAX_NODES)


def _reference(settings: DrafterSettings) -> Drafter:
    from offramp.draft.reference import ReferenceDrafter

    return ReferenceDrafter(max_nodes=MAX_NODES)


def _suffix(settings: DrafterSettings) -> Drafter:
    from offramp.draft.suffix import SuffixDrafter

    return SuffixDrafter(max_nodes=MAX_NODES, store_bytes=settings.store_bytes)


def _auto(settings: DrafterSettings) -> Drafter:
    from offramp.draft.auto import AutoDrafter

    return AutoDrafter(_suffix(settings), _reference(settings))


DRAFTERS: Mapping[str, Callable[[DrafterSettings], Drafter]] = {
    OFF: _off,
    AUTO: _auto,
    "ngram": _ngram,
    "reference": _reference,
    "suffix": _suffix,
}


def draft_name(text: object) -> str:
    """A user's choice of drafters as one name: several are joined by commas. Unknown ones are refused by name."""
    names = [part.strip() for part in text.split(",")] if isinstance(text, str) else []
    unknown = [name for name in names if name not in DRAFTERS]
    if unknown or not names:
        hint = f"known drafters: {', '.join(sorted(DRAFTERS))}; several are joined by commas"
        what = f"no drafter is called {shown(unknown[0])}" if unknown else "not a name"
        raise InvalidRequestError(f"draft={shown(text)}: {what}", hint=hint, param="draft")
    if len(names) > 1 and ({OFF, AUTO} & set(names) or len(set(names)) < len(names)):
        hint = "join different drafters; off and auto stand alone"
        raise InvalidRequestError(f"draft={shown(text)}: these can't be combined", hint=hint, param="draft")
    return ",".join(names)


def make_drafter(name: str, settings: DrafterSettings | None = None) -> Drafter:
    """The drafter of that name; several names joined by commas draft together."""
    settings = settings or DrafterSettings()
    names = draft_name(name).split(",")
    if len(names) == 1:
        return DRAFTERS[names[0]](settings)
    from offramp.draft.chain import ChainDrafter

    return ChainDrafter([DRAFTERS[each](settings) for each in names], merge=True)
