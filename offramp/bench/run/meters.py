"""What a process takes besides time, where the machine tells: memory, and energy of the processors."""

from __future__ import annotations

from pathlib import Path

STATUS = Path("/proc/self/status")
ROLLUP = Path("/proc/self/smaps_rollup")
POWERCAP = Path("/sys/class/powercap")
PACKAGE = "package"
"""How zones of whole processors are named. Their parts, and what all take together, would count twice."""


def peak_bytes(status: Path = STATUS) -> int | None:
    """The most resident memory that this process had so far."""
    return _kib(status, "VmHWM")


def in_large_pages(rollup: Path = ROLLUP) -> bool:
    """Most of what this process holds lies in large pages of memory."""
    held, large = _kib(rollup, "Rss"), _kib(rollup, "AnonHugePages")
    return held is not None and large is not None and 2 * large > held


class Energy:
    """Joules of all processors since it was made; None where the machine does not tell them to everybody."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones = {zone: _number(zone / "energy_uj") for zone in _packages(folder)}

    def joules(self) -> float | None:
        """A counter that wrapped around once is followed; a turn in which it does so twice reads too low."""
        if not self._zones:
            return None
        spent = [_spent(zone, before) for zone, before in self._zones.items()]
        return None if None in spent else sum(each for each in spent if each is not None) / 1e6


def _packages(folder: Path) -> list[Path]:
    try:
        return [zone for zone in sorted(folder.glob("intel-rapl:*")) if _text(zone / "name").startswith(PACKAGE)]
    except OSError:
        return []


def _spent(zone: Path, before: int | None) -> int | None:
    """Microjoules."""
    now = _number(zone / "energy_uj")
    if now is None or before is None:
        return None
    if now >= before:
        return now - before
    most = _number(zone / "max_energy_range_uj")
    return None if most is None else now - before + most


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isascii() and text.isdecimal() else None


def _text(file: Path) -> str:
    """Empty where it can't be read."""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _kib(file: Path, name: str) -> int | None:
    """A line such as "VmHWM:  1234 kB", in bytes."""
    for line in _text(file).splitlines():
        field, _, value = line.partition(":")
        words = value.split()
        if field == name and len(words) == 2 and words[0].isdecimal():
            return 1024 * int(words[0])
    return None
