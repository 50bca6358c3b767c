"""Drafters that break while requests run: they draft no more, and the requests go on."""

from __future__ import annotations

import logging

from offramp.errors import OfframpError

log = logging.getLogger("offramp.draft")

FAILURES = (OfframpError, MemoryError, RuntimeError, ValueError, OSError)
"""What broken weights, or an executor at its limits, may raise."""


def tell_failure(what: str, error: Exception) -> None:
    """Once for each drafter: it is not asked again."""
    log.warning("%s failed and drafts no more: %s", what, error)
