"""Learned rates of drafted tokens: the prior, the evidence, the fading."""

from __future__ import annotations

import pytest

from offramp.draft.scores import ScoreTable


def half(key: str) -> float:
    return 0.5


def test_unseen_keys_have_their_prior() -> None:
    table: ScoreTable[int] = ScoreTable(lambda key: key / 10, weight=3.0)
    assert [table.rate(key) for key in (1, 4, 9)] == [0.1, 0.4, 0.9]
    assert len(table) == 0


def test_evidence_takes_over_key_by_key() -> None:
    table = ScoreTable(half, weight=4.0, memory=1e9)
    for stood in [True] * 12 + [False] * 4:
        table.learn("a", stood)
    assert table.rate("a") == pytest.approx((12 + 2) / (16 + 4))
    assert table.rate("b") == 0.5
    assert len(table) == 1


def test_a_rate_asked_before_is_not_stale_after() -> None:
    table = ScoreTable(half)
    before = table.rate("a")
    table.learn("a", True)
    assert table.rate("a") > before


def test_what_was_seen_fades_and_the_prior_stays() -> None:
    table = ScoreTable(half, weight=1.0, memory=50.0)
    for _ in range(500):
        table.learn("a", True)
    high = table.rate("a")
    for _ in range(500):
        table.learn("a", False)
    assert high == pytest.approx(1 - table.rate("a"), abs=1e-3)
    assert 0.0 < table.rate("a") < 0.02
