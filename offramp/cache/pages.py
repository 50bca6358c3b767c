"""Who holds which page of K/V memory: plain ints, no tensors.

A page is free, used (held by one or more sequences) or idle (held by nobody but published in the prefix cache, which
may give it up at any time). Page ids only; their contents live in the executor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from offramp.errors import ResourceError


class PagePool:
    """Reference counts of `num_pages` pages."""

    def __init__(self, num_pages: int) -> None:
        assert num_pages > 0
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: low ids first
        self._references = [0] * num_pages
        self._published = [False] * num_pages
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently released first

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Pages that can be had without preempting anyone: free ones, and idle ones after eviction."""
        return len(self._free) + len(self._idle)

    @property
    def num_used(self) -> int:
        return self.num_pages - self.num_available

    def is_private(self, page: int) -> bool:
        """Held once and not published: the only pages that may be written."""
        return self._references[page] == 1 and not self._published[page]

    def allocate(self) -> int:
        """A free page, now held once. The caller evicts idle pages first when none is free."""
        if not self._free:
            raise ResourceError(
                f"all {self.num_pages} K/V pages are in use",
                hint="give the K/V cache more memory or run fewer requests",
            )
        page = self._free.pop()
        self._references[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more holder of a used or idle page."""
        assert self._references[page] > 0 or page in self._idle, f"page {page} is free"
        if self._references[page] == 0:
            del self._idle[page]
        self._references[page] += 1

    def release(self, page: int) -> None:
        """One holder less; the last one leaves the page idle if published, free otherwise."""
        assert self._references[page] > 0, f"page {page} is not held"
        self._references[page] -= 1
        if self._references[page] == 0:
            if self._published[page]:
                self._idle[page] = None
            else:
                self._free.append(page)

    def publish(self, page: int) -> None:
        """Mark a held page as cached: from now on nobody writes it, and it goes idle instead of free."""
        assert self.is_private(page), f"page {page} is shared or published already"
        self._published[page] = True

    def pop_idle(self) -> int | None:
        """Free the least recently released idle page and return its id, or None when no page is idle."""
        if not self._idle:
            return None
        page, _ = self._idle.popitem(last=False)
        self._published[page] = False
        self._free.append(page)
        return page

    def check_integrity(self, holders: Iterable[Iterable[int]] | None = None) -> None:
        """Assert that every page is in exactly one state; with `holders` (page lists), that references match them."""
        free, idle = set(self._free), set(self._idle)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & idle, "a page is free and idle"
        for page in range(self.num_pages):
            held = self._references[page] > 0
            assert held != (page in free or page in idle), f"page {page} is lost or held while free"
            assert not (page in free and self._published[page]), f"free page {page} is published"
            assert page not in idle or self._published[page], f"idle page {page} is not published"
        if holders is not None:
            counts = [0] * self.num_pages
            for pages in holders:
                for page in pages:
                    counts[page] += 1
            assert counts == self._references, "references differ from the page lists of the sequences"
