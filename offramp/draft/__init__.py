"""Drafters by name. The oracle tests run over this table, so what is registered is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offramp.core import Drafter
from offramp.errors import InvalidRequestError

__all__ = ["DRAFTERS", "make_drafter"]


def _off() -> Drafter:
    from offramp.draft.none import NoDrafter

    return NoDrafter()


DRAFTERS: Mapping[str, Callable[[], Drafter]] = {"off": _off}


def make_drafter(name: str) -> Drafter:
    """The drafter of that name; an unknown one is refused with the known names."""
    if name not in DRAFTERS:
        known = ", ".join(sorted(DRAFTERS))
        raise InvalidRequestError(f"no drafter is called {name!r}", hint=f"known drafters: {known}", param="draft")
    return DRAFTERS[name]()
