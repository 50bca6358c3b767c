"""Where and with what a number was measured: every benchmark's JSON line carries it."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from offramp.native.processor import processor_name


def provenance() -> dict[str, object]:
    """Machine, versions and time, as JSON values."""
    return {
        "offramp": version("offramp"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu": processor_name(),
        "kernel": platform.release(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
