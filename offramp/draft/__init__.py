"""Drafters by name. The oracle tests run over this table, so what is registered is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offramp.core import Drafter
from offramp.errors import InvalidRequestError
from offramp.params import shown

__all__ = ["AUTO", "COPYING", "DRAFTERS", "MAX_NODES", "OFF", "REFERENCE", "Drafters", "draft_name", "make_drafter"]

OFF = "off"
AUTO = "auto"
REFERENCE = "reference"
MAX_NODES = 16
"""Most draft tokens that a drafter of this table proposes for one sequence in one step."""


class Drafters:
    """The drafters of one engine: each of the table is made once, so that all that join it share what it learned."""

    def __init__(self, *, store_bytes: int = 64 << 20) -> None:
        """`store_bytes` are for texts learned from one request for others; 0: nothing is learned."""
        self.store_bytes = store_bytes
        self._made: dict[str, Drafter] = {}

    def get(self, name: str) -> Drafter:
        """The one under that name in the table."""
        drafter = self._made.get(name)
        if drafter is None:
            drafter = self._made[name] = DRAFTERS[name](self)
        return drafter


def _off(drafters: Drafters) -> Drafter:
    from offramp.draft.none import NoDrafter

    return NoDrafter()


def _ngram(drafters: Drafters) -> Drafter:
    from offramp.draft.ngram import NgramDrafter

    return NgramDrafter(max_nodes=MAX_NODES)


def _reference(drafters: Drafters) -> Drafter:
    from offramp.draft.reference import ReferenceDrafter

    return ReferenceDrafter(max_nodes=MAX_NODES)


def _suffix(drafters: Drafters) -> Drafter:
    from offramp.draft.suffix import SuffixDrafter

    return SuffixDrafter(max_nodes=MAX_NODES, store_bytes=drafters.store_bytes)


def _auto(drafters: Drafters) -> Drafter:
    from offramp.draft.auto import AutoDrafter

    return AutoDrafter(drafters.get("suffix"), drafters.get("reference"))


DRAFTERS: Mapping[str, Callable[[Drafters], Drafter]] = {
    OFF: _off,
    AUTO: _auto,
    "ngram": _ngram,
    REFERENCE: _reference,
    "suffix": _suffix,
}


COPYING = frozenset({AUTO, REFERENCE})
"""Those that read the references of a request."""


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


def make_drafter(name: str, drafters: Drafters | None = None) -> Drafter:
    """The drafter of that name; several names joined by commas draft together. `drafters` has those made before."""
    drafters = drafters or Drafters()
    names = draft_name(name).split(",")
    if len(names) == 1:
        return drafters.get(names[0])
    from offramp.draft.chain import ChainDrafter

    return ChainDrafter([drafters.get(each) for each in names], merge=True)
