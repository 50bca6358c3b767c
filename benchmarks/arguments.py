"""What options of benchmarks take."""

from __future__ import annotations


def comma_separated(text: str) -> list[str]:
    """Names, as they stand between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
