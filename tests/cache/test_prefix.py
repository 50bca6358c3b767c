"""Prefix cache and sequence caches against plain content: a page must always hold what its readers expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offramp.cache.pages import PagePool
from offramp.cache.prefix import BlockHashes, PrefixCache
from offramp.cache.sequence import SequenceCache
from offramp.core import PAGE_SIZE
from offramp.errors import ResourceError

NUM_PAGES = 8
NUM_LAYERS = 2


class CacheMachine(RuleBasedStateMachine):
    """Sequences over few distinct prompts are admitted, run, published and released; memory holds token histories."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.prefix = PrefixCache(self.pool)
        self.memory: dict[int, list[object]] = {page: [None] * PAGE_SIZE for page in range(NUM_PAGES)}
        self.live: list[tuple[SequenceCache, np.ndarray, str]] = []

    @rule(seed=st.integers(0, 1), length=st.integers(1, 100), salt=st.sampled_from(["", "x"]))
    def admit(self, seed: int, length: int, salt: str) -> None:
        tokens = np.random.default_rng(seed).integers(0, 9, 100).astype(np.int32)[:length]
        cache = SequenceCache(self.pool, self.prefix, NUM_LAYERS, salt)
        covered, copies = cache.adopt(tokens, length - 1)
        assert covered < length
        before = {source: list(self.memory[source]) for source, _ in copies}
        for source, target in copies:
            self.memory[target] = before[source]
        try:
            cache.grow(length)
        except ResourceError:
            cache.release()
            return
        self.live.append((cache, tokens, salt))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), amount=st.integers(1, 64), depth=st.integers(1, NUM_LAYERS))
    def run(self, data: st.DataObject, amount: int, depth: int) -> None:
        cache, tokens, salt = data.draw(st.sampled_from(self.live))
        first = cache.fill.paid if depth == NUM_LAYERS else cache.fill.filled
        count = min(len(tokens), max(first + amount, cache.fill.filled))
        if count == first:
            return
        cache.assert_writable(cache.fill.filled, count)
        for position in range(first, count):
            self.memory[int(cache.pages.view[position // PAGE_SIZE])][position % PAGE_SIZE] = (
                salt,
                tuple(tokens[: position + 1]),
            )
        cache.fill.advance(first, count, 0, depth)
        cache.publish(tokens)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.live))
        entry[0].release()
        self.live.remove(entry)

    @rule()
    def clear(self) -> None:
        self.prefix.clear()
        assert self.pool.num_available == self.pool.num_free

    @invariant()
    def contents(self) -> None:
        self.pool.check_integrity([cache.pages.view.tolist() for cache, _, _ in self.live])
        self.prefix.check_integrity()
        for cache, tokens, salt in self.live:
            for position in range(cache.fill.paid):
                page = int(cache.pages.view[position // PAGE_SIZE])
                assert self.memory[page][position % PAGE_SIZE] == (salt, tuple(tokens[: position + 1]))


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True)


def make(num_pages: int = 4) -> tuple[PagePool, PrefixCache]:
    pool = PagePool(num_pages)
    return pool, PrefixCache(pool)


def filled(pool: PagePool, prefix: PrefixCache, tokens: np.ndarray, salt: str = "") -> SequenceCache:
    cache = SequenceCache(pool, prefix, NUM_LAYERS, salt)
    cache.adopt(tokens, len(tokens) - 1)
    cache.grow(len(tokens))
    cache.fill.advance(cache.fill.filled, len(tokens), 0, NUM_LAYERS)
    cache.publish(tokens)
    return cache


TOKENS = np.arange(96, dtype=np.int32)


def test_whole_prompt_hit_copies_the_last_block_and_leaves_one_token() -> None:
    pool, prefix = make()
    first = filled(pool, prefix, TOKENS[:64])
    second = SequenceCache(pool, prefix, NUM_LAYERS, "")
    covered, copies = second.adopt(TOKENS[:64], 63)
    assert covered == 63
    assert copies == [(int(first.pages.view[1]), int(second.pages.view[1]))]
    assert second.pages.view[0] == first.pages.view[0]
    second.assert_writable(63, 64)


def test_copy_on_write_falls_back_to_a_shorter_hit_when_no_page_is_left() -> None:
    pool, prefix = make(num_pages=2)
    filled(pool, prefix, TOKENS[:64]).release()
    second = SequenceCache(pool, prefix, NUM_LAYERS, "")
    assert second.adopt(TOKENS[:64], 63) == (32, [])
    second.grow(64)


def test_salt_and_an_earlier_difference_both_miss() -> None:
    pool, prefix = make(num_pages=8)
    filled(pool, prefix, TOKENS)
    for tokens, salt in ((TOKENS, "other"), (np.concatenate([[7], TOKENS[1:]]).astype(np.int32), "")):
        cache = SequenceCache(pool, prefix, NUM_LAYERS, salt)
        assert cache.adopt(tokens, 95) == (0, [])


def test_unpaid_and_tainted_blocks_are_not_published() -> None:
    pool, prefix = make()
    cache = SequenceCache(pool, prefix, NUM_LAYERS, "")
    cache.grow(96)
    cache.fill.advance(0, 96, 0, 1)
    cache.publish(TOKENS)
    assert len(prefix) == 0
    cache.fill.advance(0, 96, 0, NUM_LAYERS)
    cache.fill.taint(40)
    cache.publish(TOKENS)
    assert len(prefix) == 1


def test_eviction_takes_the_least_recently_used_deepest_block() -> None:
    pool, prefix = make(num_pages=3)
    filled(pool, prefix, TOKENS).release()
    prefix.allocate(1)
    other = SequenceCache(pool, prefix, NUM_LAYERS, "")
    assert other.adopt(TOKENS, 95) == (64, [])


def test_hashes_chain_and_are_stable_while_the_sequence_grows() -> None:
    whole = BlockHashes("s").extend(TOKENS, 3)
    growing = BlockHashes("s")
    assert growing.extend(TOKENS[:40], 1) == whole[:1]
    assert growing.extend(TOKENS, 3) == whole
    assert len(set(whole)) == 3
    with pytest.raises(AssertionError):
        growing.extend(TOKENS[:40], 2)
