"""FillState against a model that keeps, for each layer, the set of positions with K/V."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from offramp.cache.fill import FillState

NUM_LAYERS = 4
SIDE = NUM_LAYERS + 1


class FillMachine(RuleBasedStateMachine):
    """Prefill, early exits, payments, side layers and rollbacks in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.fill = FillState(NUM_LAYERS)
        self.held: list[set[int]] = [set() for _ in range(NUM_LAYERS)]
        self.side: set[int] = set()

    @rule(extra=st.integers(0, 40), depth=st.integers(1, NUM_LAYERS))
    def run(self, extra: int, depth: int) -> None:
        """New tokens to `depth`; the debt of the layers they reach is paid on the way."""
        count = self.fill.filled + extra
        for layer in range(depth):
            first = self.fill.at(layer)
            self.fill.advance(first, count, layer, layer + 1)
            self.held[layer] |= set(range(first, count))

    @rule(extra=st.integers(0, 9))
    def run_whole_range(self, extra: int) -> None:
        first, count = self.fill.paid, self.fill.filled + extra
        self.fill.advance(first, count, 0, NUM_LAYERS)
        for positions in self.held:
            positions |= set(range(first, count))

    @rule()
    def run_side(self) -> None:
        first = self.fill.at(SIDE)
        self.fill.advance_side(SIDE, first, self.fill.filled)
        self.side |= set(range(first, self.fill.filled))

    @rule(count=st.integers(0, 200))
    def trim(self, count: int) -> None:
        lost = self.fill.trim(count)
        assert lost == len([p for p in self.held[0] if p >= count])
        self.held = [{p for p in positions if p < count} for positions in self.held]
        self.side = {p for p in self.side if p < count}

    @rule(position=st.integers(0, 200))
    def taint(self, position: int) -> None:
        self.fill.taint(position)
        assert self.fill.exact <= position

    @invariant()
    def agrees(self) -> None:
        self.fill.check_integrity()
        for layer, positions in enumerate(self.held):
            assert positions == set(range(self.fill.at(layer)))
            assert self.fill.debt(layer) == len(self.held[0]) - len(positions)
        assert self.side == set(range(self.fill.at(SIDE)))
        assert self.fill.exact <= self.fill.paid == len(self.held[-1])


TestFill = FillMachine.TestCase
TestFill.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)


def test_holes_and_inversions_are_caught() -> None:
    fill = FillState(3)
    fill.advance(0, 5, 0, 3)
    with pytest.raises(AssertionError, match="hole"):
        fill.advance(6, 8, 0, 3)
    with pytest.raises(AssertionError, match="ahead"):
        fill.advance(5, 6, 1, 3)
    with pytest.raises(AssertionError, match="shortens"):
        fill.advance(0, 4, 0, 3)
    fill.advance(5, 6, 0, 1)
    with pytest.raises(AssertionError, match="hole"):
        fill.advance(6, 7, 0, 3)  # layer 1 lacks position 5


def test_taint_ends_with_the_tokens_it_marks() -> None:
    fill = FillState(2)
    fill.advance(0, 10, 0, 2)
    fill.taint(4)
    fill.taint(7)
    assert fill.exact == 4
    fill.trim(5)
    assert fill.exact == 4
    fill.trim(4)
    assert fill.tainted_from is None


def test_only_an_empty_sequence_adopts() -> None:
    fill = FillState(2)
    fill.adopt(32)
    assert (fill.filled, fill.paid) == (32, 32)
    with pytest.raises(AssertionError):
        fill.adopt(64)
