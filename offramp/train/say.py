"""How training tells how it goes."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes one line of progress."""
