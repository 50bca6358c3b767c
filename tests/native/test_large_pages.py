"""Weights in large pages: the same bytes, and the mapping where that can't be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp.native import large_pages
from offramp.native.large_pages import (
    LARGE_PAGE,
    LEAST_BYTES,
    large_pages_offered,
    moved_to_large_pages,
    read_into_large_pages,
)


def test_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 3_000_001, dtype=np.uint8)
    path = tmp_path / "file"
    path.write_bytes(content.tobytes())
    held = read_into_large_pages(path, 3_000_000)
    assert held is not None
    assert np.array_equal(held, content[:3_000_000])
    assert held.ctypes.data % 4096 == 0


def test_a_shorter_file_or_none_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_into_large_pages(path, 10) is None
    path.write_bytes(b"123456789")
    assert read_into_large_pages(path, 10) is None


def test_moved_bytes_are_the_same_and_begin_with_a_large_page(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(2).integers(0, 256, LEAST_BYTES + 5, dtype=np.uint8)
    monkeypatch.setattr(large_pages, "large_pages_offered", lambda: True)
    moved = moved_to_large_pages(data)
    assert np.array_equal(moved, data)
    assert not np.shares_memory(moved, data)
    assert moved.ctypes.data % LARGE_PAGE == 0
    assert moved_to_large_pages(data[:1000]).base is data
    monkeypatch.setattr(large_pages, "large_pages_offered", lambda: False)
    assert moved_to_large_pages(data) is data


@pytest.mark.parametrize(("text", "offered"), [("always [madvise] never", True), ("always madvise [never]", False)])
def test_the_systems_switch_counts(tmp_path: Path, text: str, offered: bool) -> None:
    switch = tmp_path / "enabled"
    assert not large_pages_offered(switch)
    switch.write_text(text)
    assert large_pages_offered(switch) == offered
    assert large_pages.SWITCH.name == "enabled"
