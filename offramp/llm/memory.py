"""How much K/V memory to use: bytes, pages and the context they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from offramp.core import PAGE_SIZE
from offramp.errors import ResourceError
from offramp.model.config import ModelConfig
from offramp.native.kv import KvType, page_bytes
from offramp.params import check_int, refused

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
MAX_BYTES = 2**60
USUAL_LENGTH = 2048  # tokens a running sequence is given room for by default
SHARE = 2  # by default K/V takes at most this part of the available memory


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """One of several models' part of the memory that is for the weights and K/V of all of them."""

    num_bytes: int  # for all
    num_models: int

    def __post_init__(self) -> None:
        assert self.num_models > 0, "no models"

    def left_by(self, weight_bytes: int) -> tuple[int, int]:
        """Bytes for K/V beside a model's weights: of its equal share (maybe below 0), and of all the memory."""
        return self.num_bytes // self.num_models - weight_bytes, self.num_bytes - weight_bytes


@dataclass(frozen=True, slots=True)
class KvPlan:
    """K/V memory of an executor, and the longest sequence served with it."""

    num_pages: int
    max_context: int
    page_bytes: int

    @property
    def num_bytes(self) -> int:
        return self.num_pages * self.page_bytes


def plan_kv(
    config: ModelConfig,
    *,
    kv: KvType,
    kv_memory: int | str | None,
    max_context: int | None,
    max_num_seqs: int,
    available: int,
    share: int | None = None,
    beside: int = 0,
) -> KvPlan:
    """Choose pages for `kv_memory` bytes, by default for some sequences of usual length within half of `available`.

    One sequence of full context always fits: an asked-for `max_context` that doesn't is refused (ResourceError), an
    unasked one is lowered to what fits. By default at most `share` bytes are taken, if there is one and it holds a
    sequence of usual length; `beside` are bytes that each page takes besides, in another model's memory.
    """
    longest = _wanted_context(config, max_context)
    own = page_bytes(config, kv)
    asked = None if kv_memory is None else _asked_bytes(kv_memory, available)
    size = own if asked is not None else own + beside
    room = available // SHARE if asked is None else asked
    if asked is None and share is not None and share >= _pages(min(longest, USUAL_LENGTH)) * size:
        room = share
    given = f"{mib(room)} may be used" if asked is None else f"kv_memory gives {mib(asked)}"
    num_pages = room // size
    if num_pages == 0:
        raise ResourceError(
            f"one page of K/V takes {mib(size)} of memory, and {given}", hint="raise kv_memory or free some memory"
        )
    if asked is None:
        num_pages = min(num_pages, max(_pages(longest), max_num_seqs * _pages(min(longest, USUAL_LENGTH))))
    fits = num_pages * PAGE_SIZE
    if max_context is not None and fits < max_context:
        raise ResourceError(
            f"a context of {max_context} tokens takes {mib(_pages(max_context) * size)} of K/V memory, and {given}",
            hint=f"lower max_context to at most {fits} or raise kv_memory",
        )
    return KvPlan(num_pages, min(longest, fits), own)


def parse_bytes(value: int | str, *, name: str = "kv_memory") -> int:
    """A number of bytes, or a text such as "512MiB" or "2GB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)\s*", value, re.ASCII)
        unit = UNITS.get(match[2].upper()) if match else None
        num_bytes = int(Fraction(match[1]) * unit) if match and unit else 0
    else:
        num_bytes = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if not 1 <= num_bytes <= MAX_BYTES:
        raise refused(name, value, "a positive number of bytes, or a text such as 512MiB or 2GiB")
    return num_bytes


def shared_memory(asked: int | None, num_models: int) -> int | None:
    """Bytes for the weights and K/V of all models, by default three quarters of what is free; None: one takes its own.

    Raises ResourceError for more than there is.
    """
    if asked is None and num_models == 1:
        return None
    available = available_memory()
    if asked is None:
        return available // 4 * 3
    if asked > available:
        raise ResourceError(f"{mib(asked)} were asked for, and {mib(available)} are available", hint="lower --memory")
    return asked


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process can still take: the kernel's MemAvailable, less where a cgroup allows less."""
    return min([_meminfo(proc), *_cgroup_rooms(proc, cgroup)])


def _wanted_context(config: ModelConfig, max_context: int | None) -> int:
    check_int("max_context", max_context, 2, config.max_context, optional=True)
    return config.max_context if max_context is None else max_context


def _asked_bytes(kv_memory: int | str, available: int) -> int:
    asked = parse_bytes(kv_memory)
    if asked > available:
        raise ResourceError(
            f"{mib(asked)} of K/V memory were asked for, and {mib(available)} are available", hint="lower kv_memory"
        )
    return asked


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE_SIZE)


def mib(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.1f} KiB"


def _meminfo(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ResourceError("the kernel does not tell how much memory is available", hint="set kv_memory")


def _cgroup_rooms(proc: Path, root: Path) -> list[int]:
    """What each limited cgroup above this process has left; page cache that can be dropped counts as left."""
    rooms: list[int] = []
    for folder in _cgroup_folders(proc, root):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            rooms.append(max(0, limit - used + _inactive_file(folder / "memory.stat")))
    return rooms


def _cgroup_folders(proc: Path, root: Path) -> list[Path]:
    own = next((line[3:] for line in _lines(proc / "self" / "cgroup") if line.startswith("0::")), "/")
    folder = root / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _inactive_file(path: Path) -> int:
    return next((int(line.split()[1]) for line in _lines(path) if line.startswith("inactive_file ")), 0)


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # no such controller here
        return []
