"""K/V of a drafter: a sequence's tokens as far as they ran, in pages of its own pool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from collections.abc import Sequence as Items

import numpy as np

from offramp.cache.pages import PagePool
from offramp.cache.prefix import PrefixCache
from offramp.cache.sequence import SequenceCache
from offramp.core import IdBuffer, Ids, Rows, SequenceKey, num_shared_ids


class OwnSequence:
    """The tokens of one sequence that have K/V, drafts included, and their pages."""

    def __init__(self, cache: SequenceCache) -> None:
        self.cache = cache
        self.base = 0  # the place in the text where they begin
        self.num_real = 0  # of a drafter that looks at hidden states: tokens that ran with the target's
        self.tokens = IdBuffer()

    def trim_to(self, token_ids: Ids) -> int:
        """Keep what the text begins with, but never all of it: its last token is to run. Returns how many are kept."""
        known = self.tokens.view
        most = min(len(known), len(token_ids) - 1)
        kept = num_shared_ids(known[:most], token_ids)
        self.cut(kept)
        return kept

    def cut(self, kept: int) -> None:
        """Keep so many tokens at most."""
        self.num_real = min(self.num_real, kept)
        while len(self.tokens) > kept:
            self.tokens.pop()
        self.cache.fill.trim(kept)
        self.cache.trim_pages(kept)

    def ran(self, token_ids: Ids) -> None:
        """These tokens, next in order, have K/V in all layers now."""
        before = len(self.tokens)
        self.tokens.extend(token_ids.tolist())
        self.cache.fill.advance(before, len(self.tokens), 0, self.cache.fill.num_layers)


class OwnCache:
    """Pages of all sequences; those not asked about for longest give theirs up first."""

    def __init__(self, num_pages: int, num_layers: int) -> None:
        self._pool = PagePool(num_pages)
        self._prefix = PrefixCache(self._pool, enabled=False)
        self._num_layers = num_layers
        self._sequences: OrderedDict[SequenceKey, OwnSequence] = OrderedDict()  # the latest used last

    @property
    def num_used(self) -> int:
        """Pages held."""
        return self._pool.num_used

    def get(self, key: SequenceKey) -> OwnSequence:
        """The sequence of that name, empty when it is new."""
        own = self._sequences.get(key)
        if own is None:
            own = OwnSequence(SequenceCache(self._pool, self._prefix, self._num_layers, ""))
            self._sequences[key] = own
        self._sequences.move_to_end(key)
        return own

    def grow(self, own: OwnSequence, slots: int, busy: Collection[SequenceKey]) -> bool:
        """Hold pages for so many slots; others than the busy ones make room. False, changing nothing, without room."""
        missing = own.cache.missing(slots)
        idle = [key for key in self._sequences if key not in busy]
        while missing > self._pool.num_available and idle:
            self.drop(idle.pop(0))
        if missing > self._pool.num_available:
            return False
        own.cache.grow(slots)
        return True

    def drop(self, key: SequenceKey) -> None:
        """Give a sequence's pages back."""
        own = self._sequences.pop(key, None)
        if own is not None:
            own.cache.release()

    def clear(self) -> None:
        for key in list(self._sequences):
            self.drop(key)

    def check_integrity(self) -> None:
        """Assert that pages and fill agree with the tokens."""
        self._pool.check_integrity([own.cache.pages.view.tolist() for own in self._sequences.values()])
        for own in self._sequences.values():
            own.cache.fill.check_integrity()
            assert own.cache.fill.paid == len(own.tokens)
            assert own.cache.missing(len(own.tokens)) == 0


def next_rows(owners: Items[OwnSequence], parts: Items[Ids]) -> Rows:
    """Rows for the tokens of each part, next in the text of its owner, which holds pages for them."""
    pages = [own.cache.pages.view for own in owners]
    if len(owners) == 1:
        [part], start = parts, len(owners[0].tokens)
        positions = np.arange(start, start + len(part), dtype=np.int32)
        return Rows.plain(np.ascontiguousarray(part), np.zeros(len(part), dtype=np.int32), positions, pages)
    places: list[int] = []
    sequence: list[int] = []
    for index, (own, part) in enumerate(zip(owners, parts, strict=True)):
        places += range(len(own.tokens), len(own.tokens) + len(part))
        sequence += [index] * len(part)
    sequence_ids, positions = np.array(sequence, dtype=np.int32), np.array(places, dtype=np.int32)
    return Rows.plain(np.concatenate(parts), sequence_ids, positions, pages)
