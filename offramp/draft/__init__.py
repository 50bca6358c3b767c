"""Drafters by name. The oracle tests run over this table, so what is registered is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from offramp.core import Drafter
from offramp.errors import InvalidRequestError
from offramp.params import shown

if TYPE_CHECKING:
    from offramp.draft.paid import PaidDrafter
    from offramp.draft.predictions import Predictions

__all__ = [
    "AUTO",
    "COPYING",
    "DRAFTERS",
    "DRAFT_MODEL",
    "EAGLE",
    "EARLY_EXIT",
    "MAX_NODES",
    "NEEDS",
    "OFF",
    "REFERENCE",
    "Drafters",
    "draft_name",
    "lacking",
    "make_drafter",
]

OFF = "off"
AUTO = "auto"
REFERENCE = "reference"
EARLY_EXIT = "early_exit"
DRAFT_MODEL = "model"
EAGLE = "eagle"
MAX_NODES = 16
"""Most draft tokens that a drafter of this table proposes for one sequence in one step."""


class Drafters:
    """The drafters of one engine: each of the table is made once, so that all that join it share what it learned."""

    def __init__(
        self,
        *,
        store_bytes: int = 64 << 20,
        makers: Mapping[str, Callable[[], PaidDrafter]] | None = None,
        predictions: Predictions | None = None,
    ) -> None:
        """`store_bytes` are for texts learned from one request for others; 0: nothing is learned.

        `makers` make those that need weights (`NEEDS`), where there are any; `auto` weighs them by `predictions`.
        """
        self.store_bytes = store_bytes
        self.predictions = predictions
        self._makers = dict(makers or {})
        self._made: dict[str, Drafter] = {}
        self._paid: dict[str, PaidDrafter] = {}

    def get(self, name: str) -> Drafter:
        """The one under that name in the table."""
        drafter = self._made.get(name)
        if drafter is None:
            drafter = self._made[name] = DRAFTERS[name](self)
        return drafter

    def paid(self, name: str) -> PaidDrafter:
        """One that needs weights. Raises InvalidRequestError without them."""
        drafter = self._paid.get(name)
        if drafter is None:
            if name not in self._makers:
                raise lacking(name)
            drafter = self._paid[name] = self._makers[name]()
        return drafter

    def has(self, name: str) -> bool:
        """There are weights for that drafter."""
        return name in self._makers


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
    from offramp.draft.copying import CopyingDrafter

    copying = CopyingDrafter(drafters.get("suffix"), drafters.get(REFERENCE))
    paid = [drafters.paid(name) for name in (EAGLE, DRAFT_MODEL) if drafters.has(name)]
    alone = drafters.paid(EARLY_EXIT) if drafters.has(EARLY_EXIT) else None
    if not paid and alone is None:
        return copying
    from offramp.draft.auto import AutoDrafter

    return AutoDrafter(copying, paid, alone, drafters.predictions)


def _early_exit(drafters: Drafters) -> Drafter:
    return drafters.paid(EARLY_EXIT)


def _model(drafters: Drafters) -> Drafter:
    return drafters.paid(DRAFT_MODEL)


def _eagle(drafters: Drafters) -> Drafter:
    return drafters.paid(EAGLE)


DRAFTERS: Mapping[str, Callable[[Drafters], Drafter]] = {
    OFF: _off,
    AUTO: _auto,
    "ngram": _ngram,
    REFERENCE: _reference,
    "suffix": _suffix,
    EARLY_EXIT: _early_exit,
    DRAFT_MODEL: _model,
    EAGLE: _eagle,
}

NEEDS: Mapping[str, tuple[str, str]] = {
    EARLY_EXIT: ("an exit pack", "name one by exits; `offramp train exits` makes one for a model"),
    DRAFT_MODEL: ("a draft model", "name a small model of the same vocabulary by draft_model"),
    EAGLE: ("a drafter pack", "name one by drafter; `offramp train drafter` makes one for a model"),
}
"""Drafters with weights: what they need, and how to give it."""
ALONE = frozenset({OFF, AUTO, EARLY_EXIT})
"""Those that can't be joined with others: the rows of a self-drafted chain lie where the step takes them up."""

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
    if len(names) > 1 and (ALONE & set(names) or len(set(names)) < len(names)):
        hint = f"join different drafters; {', '.join(sorted(ALONE))} stand alone"
        raise InvalidRequestError(f"draft={shown(text)}: these can't be combined", hint=hint, param="draft")
    return ",".join(names)


def lacking(name: str) -> InvalidRequestError:
    """The refusal of a drafter whose weights are not there."""
    what, hint = NEEDS[name]
    return InvalidRequestError(f"draft={shown(name)} needs {what}", hint=hint, param="draft")


def make_drafter(name: str, drafters: Drafters | None = None) -> Drafter:
    """The drafter of that name; several names joined by commas draft together. `drafters` has those made before."""
    drafters = drafters or Drafters()
    names = draft_name(name).split(",")
    if len(names) == 1:
        return drafters.get(names[0])
    from offramp.draft.chain import ChainDrafter

    return ChainDrafter([drafters.get(each) for each in names], merge=True)
