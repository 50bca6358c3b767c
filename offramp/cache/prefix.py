"""Find earlier K/V by content: full blocks of 32 tokens, named by a hash that chains over everything before them.

Equal names mean equal salt and equal tokens from position 0 on, so a hit is exact (rows are batch-invariant). Only
blocks paid at all layers and untainted may be published. A published page is never written again; whoever must write
into one (a hit that covers the whole prompt, whose last token has to be run again for its logits) copies it first.
"""

from __future__ import annotations

import hashlib

import numpy as np

from offramp.cache.pages import PagePool
from offramp.core import PAGE_SIZE, Ids
from offramp.errors import ResourceError


class BlockHashes:
    """The chained hashes of one growing token sequence; each block is hashed once."""

    def __init__(self, salt: str) -> None:
        self._names: list[bytes] = []
        self._root = hashlib.blake2b(salt.encode(), digest_size=16).digest()

    def extend(self, token_ids: Ids, num_blocks: int) -> list[bytes]:
        """Names of the first `num_blocks` blocks. `token_ids` holds the whole sequence, which only ever grows."""
        assert num_blocks * PAGE_SIZE <= len(token_ids)
        for block in range(len(self._names), num_blocks):
            parent = self._names[-1] if self._names else self._root
            tokens = np.ascontiguousarray(token_ids[block * PAGE_SIZE : (block + 1) * PAGE_SIZE], dtype="<i4")
            self._names.append(hashlib.blake2b(parent + tokens.tobytes(), digest_size=16).digest())
        return self._names[:num_blocks]


class PrefixCache:
    """Published pages by block name; unreferenced ones stay until memory is needed (least recently used first)."""

    def __init__(self, pool: PagePool, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._pool = pool
        self._page_of: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._page_of)

    def match(self, names: list[bytes]) -> list[int]:
        """Pages of the longest published run from the first block on, each retained for the caller."""
        pages: list[int] = []
        for name in names:
            page = self._page_of.get(name)
            if page is None:
                break
            self._pool.retain(page)
            pages.append(page)
        return pages

    def publish(self, name: bytes, page: int) -> bool:
        """Offer a full, exact, private page; False when that block is cached already (the page then stays private)."""
        if not self.enabled or name in self._page_of:
            return False
        self._pool.publish(page)
        self._page_of[name] = page
        self._name_of[page] = name
        return True

    def allocate(self, count: int) -> list[int]:
        """`count` fresh pages, evicting idle published ones as needed; all or none (ResourceError)."""
        if count > self._pool.num_available:
            raise ResourceError(
                f"{count} K/V pages wanted, {self._pool.num_available} available",
                hint="give the K/V cache more memory or run fewer requests",
            )
        while self._pool.num_free < count:
            self._evict()
        return [self._pool.allocate() for _ in range(count)]

    def clear(self) -> int:
        """Forget every published page that nobody holds; returns how many."""
        count = 0
        while self._pool.num_available > self._pool.num_free:
            self._evict()
            count += 1
        return count

    def _evict(self) -> None:
        page = self._pool.pop_idle()
        assert page is not None
        del self._page_of[self._name_of.pop(page)]

    def check_integrity(self) -> None:
        assert len(self._page_of) == len(self._name_of)
        for name, page in self._page_of.items():
            assert self._name_of[page] == name
            assert not self._pool.is_private(page), f"cached page {page} is not marked as published"
