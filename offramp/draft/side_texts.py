"""What an eagle drafter's side layer knows of each text: K/V of places with the target's states, then drafted ones."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from offramp.core import DraftAsk, Ids, Rows, SequenceKey
from offramp.draft.own_cache import OwnCache, OwnSequence, next_rows
from offramp.draft.side_model import Guesses, SideModel
from offramp.draft.tapped import TappedStates
from offramp.model.executor import Hidden

LEAST_PLACES = 8
"""Behind a hole: with fewer places seen it drafts nothing, for it would say little and be judged by that."""
FEW_ROWS = 4
"""Rows up to so many run whole, though only the last of a sequence says something: cheaper than two calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Caught:
    """Those that can draft now, and what the layer says behind their last tokens."""

    ready: list[tuple[DraftAsk, OwnSequence]]
    hidden: Hidden
    guesses: Guesses
    num_rows: int  # that ran, of others too


class SideTexts:
    """Follows the texts by the states that the taps hand out."""

    def __init__(self, model: SideModel, taps: TappedStates) -> None:
        self._model = model
        self._taps = taps
        self._cache = OwnCache(model.executor.num_pages, 1)

    @property
    def num_used(self) -> int:
        """Pages held."""
        return self._cache.num_used

    def catch_up(self, asks: Items[DraftAsk], busy: Collection[SequenceKey], num_guesses: int) -> Caught | None:
        """Run the places whose states are new, in the stead of what was drafted there; None if nobody can draft."""
        found: list[tuple[DraftAsk, OwnSequence]] = []
        parts: list[Ids] = []
        states: list[NDArray[np.float32]] = []
        for ask in asks:
            own = self._cache.get(ask.key)
            new = self._new_states(ask, own)
            if new is None or not self._cache.grow(own, len(own.tokens) + len(new), busy):
                continue
            first = own.base + len(own.tokens) + 1
            found.append((ask, own))
            parts.append(ask.token_ids[first : first + len(new)])
            states.append(new)
        if not found:
            return None
        rows = next_rows([own for _, own in found], parts)
        reached = [len(own.tokens) + len(part) for (_, own), part in zip(found, parts, strict=True)]
        ready = [place for place, (_, own) in enumerate(found) if own.base == 0 or reached[place] >= LEAST_PLACES]
        ends = list(accumulate(map(len, parts)))
        last = np.array([ends[place] - 1 for place in ready], dtype=np.int32)
        seen = states[0] if len(states) == 1 else np.concatenate(states)
        said = self._run_first(rows, seen, last, num_guesses)
        for (_, own), part in zip(found, parts, strict=True):
            own.ran(part)
            own.num_real = len(own.tokens)
        return None if said is None else Caught([found[place] for place in ready], *said, len(rows))

    def run_drafted(
        self, owners: Items[OwnSequence], tokens: Ids, own: Hidden, num_guesses: int
    ) -> tuple[Hidden, Guesses]:
        """A drafted token of each, behind the layer's own output for the place before."""
        parts = [tokens[index : index + 1] for index in range(len(owners))]
        said = self._model.run_next(next_rows(owners, parts), own, num_guesses)
        for owner, part in zip(owners, parts, strict=True):
            owner.ran(part)
        return said

    def has_room(self, own: OwnSequence, busy: Collection[SequenceKey]) -> bool:
        """There are pages for another token."""
        return self._cache.grow(own, len(own.tokens) + 1, busy)

    def drop(self, key: SequenceKey) -> None:
        """Give a sequence's pages back."""
        self._cache.drop(key)

    def clear(self) -> None:
        self._cache.clear()

    def check_integrity(self) -> None:
        """Assert that pages and fill agree with the tokens."""
        self._cache.check_integrity()

    def _run_first(
        self, rows: Rows, seen: NDArray[np.float32], last: Ids, num_guesses: int
    ) -> tuple[Hidden, Guesses] | None:
        """Run the new rows; the layer's output for `last`, some of them. None if those are none."""
        if len(last) == 0:
            self._model.fill(rows, seen)
            return None
        if len(rows) <= FEW_ROWS * len(last):
            return self._model.run_first(rows, seen, last, num_guesses)
        rest = np.setdiff1d(np.arange(len(rows), dtype=np.int32), last).astype(np.int32)
        self._model.fill(rows.take(rest), np.ascontiguousarray(seen[rest]))
        every = np.arange(len(last), dtype=np.int32)
        return self._model.run_first(rows.take(last), np.ascontiguousarray(seen[last]), every, num_guesses)

    def _new_states(self, ask: DraftAsk, own: OwnSequence) -> NDArray[np.float32] | None:
        """States of the places that follow those that ran; None if the last place's are not there.

        Drafted rows are cut off. Behind a hole the sequence begins anew.
        """
        own.cut(own.num_real)
        seen = self._taps.take(ask.key, len(ask.token_ids) - 1)
        if seen is None:
            return None
        follows = own.base + len(own.tokens)
        if seen.first > follows or len(own.tokens) == 0:
            own.cut(0)
            own.base = follows = seen.first
        states = seen.states[follows - seen.first :]
        return states if len(states) else None
