"""Weights in large pages of memory.

A step reads all weights once: 143 MB are 35,000 pages of 4 KiB, more than any TLB holds, and 70 of 2 MiB. Mapped
files get large pages by luck only (freshly written ones often, those read back from disk hardly ever), so where memory
allows the weights are read into memory of their own: a step then takes about 10 % less. Processes no longer share it.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LARGE_PAGE = 2 << 20
LEAST_BYTES = LARGE_PAGE // 2  # below, little is won
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def large_pages_offered(switch: Path = SWITCH) -> bool:
    """The system backs memory with large pages, at least for who asks."""
    try:
        return "[never]" not in switch.read_text()
    except OSError:
        return False


def read_into_large_pages(path: Path, size: int) -> NDArray[np.uint8] | None:
    """The first `size` bytes of a file in private memory; None when it can't be had or the file is shorter."""
    try:
        memory = mmap.mmap(-1, -(-size // LARGE_PAGE) * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        with path.open("rb", buffering=0) as file, memoryview(memory) as view:
            done = 0
            while done < size and (count := file.readinto(view[done:size])):
                done += count
    except OSError:
        return None
    return np.frombuffer(memory, dtype=np.uint8, count=size) if done == size else None


def moved_to_large_pages(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy in memory that begins with a large page; `data` itself where that can't be had or wins little."""
    size = len(data)
    if size < LEAST_BYTES or not large_pages_offered():
        return data
    try:
        memory = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return data
    room = np.frombuffer(memory, dtype=np.uint8)
    start = -room.ctypes.data % LARGE_PAGE
    held = room[start : start + size]
    held[:] = data
    return held
