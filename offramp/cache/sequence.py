"""The K/V of one sequence: its pages, how far each layer is filled, and what of it is published."""

from __future__ import annotations

from offramp.cache.fill import FillState
from offramp.cache.pages import PagePool
from offramp.cache.prefix import BlockHashes, PrefixCache
from offramp.core import PAGE_SIZE, IdBuffer, Ids


def pages_for(slots: int) -> int:
    """Pages that hold this many slots."""
    return -(-slots // PAGE_SIZE)


class SequenceCache:
    """Pages and fill of one sequence; every page it holds goes back with `release`."""

    def __init__(self, pool: PagePool, prefix: PrefixCache, num_layers: int, salt: str) -> None:
        self.pages = IdBuffer()
        self.fill = FillState(num_layers)
        self._pool = pool
        self._prefix = prefix
        self._hashes = BlockHashes(salt)
        self._num_published = 0  # leading blocks that are published, by us or by others

    def missing(self, slots: int) -> int:
        """Pages still needed to hold slots 0..slots-1."""
        return max(0, pages_for(slots) - len(self.pages))

    def room(self, slots: int, num_available: int) -> int:
        """Slots from `slots` on that this cache could hold with `num_available` more pages."""
        return (len(self.pages) + num_available) * PAGE_SIZE - slots

    def grow(self, slots: int) -> None:
        """Hold pages for slots 0..slots-1. Raises ResourceError, changing nothing, when too few are available."""
        count = self.missing(slots)
        if count:
            self.pages.extend(self._prefix.allocate(count))

    def adopt(self, token_ids: Ids, limit: int) -> tuple[int, list[tuple[int, int]]]:
        """Take over published K/V of at most `limit` leading tokens.

        Returns the number of tokens covered and the page copies (source, target) that must be done before anything is
        written: the last block is copied when only part of it may be used, since its rest will be written again.
        """
        assert len(self.pages) == 0
        if not self._prefix.enabled or limit <= 0:
            return 0, []
        blocks = min(pages_for(limit), len(token_ids) // PAGE_SIZE)
        pages = self._prefix.match(self._hashes.extend(token_ids, blocks))
        copies: list[tuple[int, int]] = []
        if len(pages) * PAGE_SIZE > limit:
            source = pages.pop()
            if self._pool.num_available:
                [target] = self._prefix.allocate(1)
                copies = [(source, target)]
            self._pool.release(source)
        self._num_published = len(pages)
        covered = min(limit, (len(pages) + len(copies)) * PAGE_SIZE)
        self.pages.extend(pages + [target for _, target in copies])
        self.fill.adopt(covered)
        return covered, copies

    def publish(self, token_ids: Ids) -> None:
        """Publish every full block that is exact in all layers."""
        if not self._prefix.enabled:
            return
        blocks = self.fill.exact // PAGE_SIZE
        if blocks <= self._num_published:
            return
        names = self._hashes.extend(token_ids, blocks)
        for block in range(self._num_published, blocks):
            self._prefix.publish(names[block], int(self.pages.view[block]))
        self._num_published = blocks

    def trim_pages(self, slots: int) -> None:
        """Give back the pages above slots 0..slots-1 (scratch of rejected drafts)."""
        keep = pages_for(slots)
        while len(self.pages) > keep:
            self._pool.release(self.pages.pop())

    def physical(self, slots: Ids) -> Ids:
        """Executor slots (page id * 32 + offset) of these slots of the sequence."""
        physical: Ids = self.pages.view[slots // PAGE_SIZE] * PAGE_SIZE + slots % PAGE_SIZE
        return physical

    def assert_writable(self, start: int, stop: int) -> None:
        """Slots start..stop-1 lie in private pages."""
        for page in self.pages.view[start // PAGE_SIZE : pages_for(stop)].tolist():
            assert self._pool.is_private(page), f"write into shared page {page}"

    def release(self) -> None:
        """Give every page back, deepest first so that leading blocks stay cached longest, and start from nothing."""
        while len(self.pages):
            self._pool.release(self.pages.pop())
        self.fill = FillState(self.fill.num_layers)
        self._num_published = 0
