"""The default thread count: affinity, and the CPU quota of either cgroup version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offramp.native.threads import default_threads


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("text", "threads"), [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1)]
)
def test_quota_of_version_2(tmp_path: Path, text: str, threads: int) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert default_threads(tmp_path) == threads


@pytest.mark.parametrize(("quota", "threads"), [("-1", 8), ("300000", 3), ("250000", 3), ("1600000", 8)])
def test_quota_of_version_1(tmp_path: Path, quota: str, threads: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert default_threads(tmp_path) == threads


def test_without_a_cgroup_affinity_decides(tmp_path: Path) -> None:
    assert default_threads(tmp_path) == 8
