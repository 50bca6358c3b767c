"""PagePool against a model that keeps a plain set of holders per page."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offramp.cache.pages import PagePool
from offramp.errors import ResourceError

NUM_PAGES = 5


class PoolMachine(RuleBasedStateMachine):
    """Random holders take, share, publish and give back pages."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.held: list[int] = []  # one entry a holder
        self.published: set[int] = set()
        self.idle: list[int] = []  # oldest release first

    @rule()
    def allocate(self) -> None:
        if self.pool.num_free == 0:
            with pytest.raises(ResourceError):
                self.pool.allocate()
            return
        page = self.pool.allocate()
        assert page not in self.held
        assert page not in self.idle
        self.held.append(page)

    @precondition(lambda self: self.held or self.idle)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted({*self.held, *self.idle})))
        self.pool.retain(page)
        self.held.append(page)
        if page in self.idle:
            self.idle.remove(page)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.held)))
        self.pool.release(page)
        self.held.remove(page)
        if page not in self.held and page in self.published:
            self.idle.append(page)

    @precondition(lambda self: any(self.pool.is_private(page) for page in self.held))
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(page for page in self.held if self.pool.is_private(page))))
        self.pool.publish(page)
        self.published.add(page)

    @rule()
    def evict(self) -> None:
        expected = self.idle.pop(0) if self.idle else None
        assert self.pool.pop_idle() == expected
        self.published.discard(-1 if expected is None else expected)

    @invariant()
    def counts(self) -> None:
        self.pool.check_integrity([self.held])
        assert self.pool.num_available == NUM_PAGES - len(set(self.held))
        for page in range(NUM_PAGES):
            assert self.pool.is_private(page) == (self.held.count(page) == 1 and page not in self.published)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)


def test_misuse_is_caught() -> None:
    pool = PagePool(2)
    page = pool.allocate()
    with pytest.raises(AssertionError):
        pool.release(1 - page)
    with pytest.raises(AssertionError):
        pool.retain(1 - page)
    pool.publish(page)
    with pytest.raises(AssertionError):
        pool.publish(page)


def test_integrity_sees_a_lost_page() -> None:
    pool = PagePool(2)
    pool.allocate()
    with pytest.raises(AssertionError):
        pool.check_integrity([[]])
