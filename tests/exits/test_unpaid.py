"""Unpaid layers are never read: the assertions that would tell, against runners that are broken on purpose."""

from __future__ import annotations

import random
from typing import Any

import pytest

from offramp.cache.fill import FillState
from offramp.engine.flight import Flight
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import run
from tests.exits.exiting import coin, engine_with, native, requests, twin


def spoil(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Now and then a debt that should come along is left behind."""
    rng = random.Random(seed)
    whole = Flight.join

    def join(self: Flight) -> None:
        if rng.random() < 0.5:
            whole(self)

    monkeypatch.setattr(Flight, "join", join)


@pytest.mark.parametrize("seed", range(6))
def test_a_debt_left_behind_is_caught_before_its_layer_is_read(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    spoil(monkeypatch, seed)
    with pytest.raises(AssertionError, match=r"^layer \d is unpaid from \d+ to \d+"):
        run(engine_with(ScriptedExits((1, 3), coin(0.5, seed)), native()), requests())


def test_the_twin_catches_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the runner's own books wrong, the K/V memory of the twin would still know."""
    monkeypatch.setattr(Flight, "join", lambda self: None)

    class Blind(int):
        """A fill that is as far as anybody asks."""

        def __ge__(self, other: Any) -> bool:
            return True

    monkeypatch.setattr(FillState, "at", lambda self, layer: Blind())
    with pytest.raises(AssertionError, match="reads a slot not written for it"):
        run(engine_with(ScriptedExits((1, 3), coin(0.5)), twin()), requests())
