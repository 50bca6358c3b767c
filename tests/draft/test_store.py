"""The store of earlier texts: apart for each salt, bounded, the newest kept."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import Ids
from offramp.draft.store import LEAST_BYTES, TextStore

KIB = 1 << 10


def text(seed: int, length: int = 200) -> Ids:
    return np.random.default_rng(seed).integers(0, 5000, size=length, dtype=np.int32)


def holds(store: TextStore, salt: str, ids: Ids) -> bool:
    return any(automaton.count(ids) for automaton in store.automata(salt))


def test_texts_stay_apart_by_salt_and_from_each_other() -> None:
    store = TextStore(256 * KIB)
    store.add("a", text(1))
    store.add("a", text(2))
    assert holds(store, "a", text(1))
    assert holds(store, "a", text(2))
    assert not holds(store, "b", text(1)[:1])
    assert not holds(store, "a", np.concatenate([text(1)[-1:], text(2)[:1]])), "no string runs across texts"


def test_the_oldest_half_goes_and_the_newest_stays() -> None:
    store = TextStore(128 * KIB)
    for seed in range(100):
        store.add("a", text(seed))
        assert store.num_bytes <= 128 * KIB
        assert store.num_bytes == sum(automaton.num_bytes for automaton in store.automata("a"))
        assert len(store.automata("a")) <= 2
        assert holds(store, "a", text(seed))
    kept = [seed for seed in range(100) if holds(store, "a", text(seed))]
    assert kept == list(range(kept[0], 100)), "what goes is what came first"
    assert 2 <= len(kept) < 50


def test_many_salts_share_the_memory() -> None:
    store = TextStore(64 * KIB)
    for seed in range(200):
        store.add(f"salt {seed}", text(seed, 20))
        assert store.num_bytes <= 64 * KIB
        assert holds(store, f"salt {seed}", text(seed, 20))
    assert not store.automata("salt 0")
    assert store.automata("salt 198")


def test_a_text_too_long_is_kept_as_far_as_it_fits() -> None:
    store = TextStore(32 * KIB)
    store.add("a", text(1))
    store.add("a", text(2, 10_000))
    assert store.num_bytes <= 32 * KIB
    assert holds(store, "a", text(2, 10_000)[:100])
    assert not holds(store, "a", text(2, 10_000)[-100:])
    store.add("a", text(3, 50))
    assert holds(store, "a", text(3, 50)), "and the next one finds room"


@pytest.mark.parametrize("max_bytes", [0, LEAST_BYTES - 1])
def test_a_store_of_nothing_holds_nothing(max_bytes: int) -> None:
    store = TextStore(max_bytes)
    store.add("a", text(1))
    assert store.num_bytes == 0
    assert store.automata("a") == []
