"""What an eagle drafter's side layer knows of each text: K/V of places with the target's states, then drafted ones."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from offramp.core import DraftAsk, Ids, Rows, SequenceKey
from offramp.draft.own_cache import OwnCache, OwnSequence
from offramp.draft.side_model import SideModel
from offramp.draft.tapped import TappedStates
from offramp.model.executor import Hidden

LEAST_PLACES = 8
"""Behind a hole: with fewer places seen it drafts nothing, for it would say little and be judged by that."""
FEW_ROWS = 4
"""Rows up to so many run whole, though only the last of a sequence says something: cheaper than two calls."""


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

    def catch_up(
        self, asks: Items[DraftAsk], busy: Collection[SequenceKey]
    ) -> tuple[list[tuple[DraftAsk, OwnSequence]], Hidden | None, int]:
        """Run the places whose states are new, in the stead of what was drafted there.

        Returns those that can draft, the layer's output behind their last tokens (None: nobody), and how many rows ran.
        """
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
            return [], None, 0
        owners = [own for _, own in found]
        hidden = self._run_first(owners, parts, states[0] if len(states) == 1 else np.concatenate(states))
        for own, part in zip(owners, parts, strict=True):
            own.ran(part)
            own.num_real = len(own.tokens)
        num_rows = sum(map(len, parts))
        ready = [place for place, own in enumerate(owners) if own.base == 0 or own.num_real >= LEAST_PLACES]
        if len(ready) == len(found):
            return found, hidden, num_rows
        taken = hidden.take(np.array(ready, dtype=np.int32)) if ready else None
        return [found[place] for place in ready], taken, num_rows

    def run_drafted(self, owners: Items[OwnSequence], tokens: Ids, own: Hidden) -> Hidden:
        """A drafted token of each, behind the layer's own output for the place before."""
        positions = np.array([len(owner.tokens) for owner in owners], dtype=np.int32)
        pages = [owner.cache.pages.view for owner in owners]
        own = self._model.run_next(Rows.plain(tokens, np.arange(len(owners), dtype=np.int32), positions, pages), own)
        for index, owner in enumerate(owners):
            owner.ran(tokens[index : index + 1])
        return own

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

    def _run_first(self, owners: Items[OwnSequence], parts: Items[Ids], seen: NDArray[np.float32]) -> Hidden:
        """The layer's output behind the last token of each part."""
        rows = _rows(owners, parts)
        last = (np.cumsum([len(part) for part in parts], dtype=np.int32) - 1).astype(np.int32)
        if len(rows) <= FEW_ROWS * len(parts):
            hidden = self._model.run_first(rows, seen)
            return hidden if len(last) == len(rows) else hidden.take(last)
        rest = np.setdiff1d(np.arange(len(rows), dtype=np.int32), last).astype(np.int32)
        self._model.fill(rows.take(rest), np.ascontiguousarray(seen[rest]))
        return self._model.run_first(rows.take(last), np.ascontiguousarray(seen[last]))

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


def _rows(owners: Items[OwnSequence], parts: Items[Ids]) -> Rows:
    """The next tokens of each sequence."""
    lengths = [len(part) for part in parts]
    starts = [len(own.tokens) for own in owners]
    positions = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    return Rows.plain(
        np.concatenate(parts).astype(np.int32),
        np.repeat(np.arange(len(parts), dtype=np.int32), lengths),
        np.concatenate(positions).astype(np.int32),
        [own.cache.pages.view for own in owners],
    )
