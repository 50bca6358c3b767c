"""How much memory a process holds."""

from __future__ import annotations

from pathlib import Path


def anonymous_bytes(process: int | str = "self") -> int:
    """Of a process, by its number: what it allocated, swapped out or not; mapped files don't count."""
    text = Path(f"/proc/{process}/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return 1024 * sum(int(lines[name].split()[0]) for name in ("RssAnon", "VmSwap"))
