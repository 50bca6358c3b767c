"""More than one model: who answers, the little one or the big one, and what several say together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offramp.collaborate.cascade.calibration import read_cascade, write_cascade
    from offramp.collaborate.cascade.cascade import Cascade
    from offramp.collaborate.cascade.certify import calibrate_cascade
    from offramp.collaborate.ensemble.committee import Committee
    from offramp.collaborate.ensemble.ensemble import Ensemble
    from offramp.collaborate.ensemble.twist import Twist
    from offramp.collaborate.router.pack_file import read_router

__all__ = [
    "Cascade",
    "Committee",
    "Ensemble",
    "Twist",
    "calibrate_cascade",
    "read_cascade",
    "read_router",
    "write_cascade",
]

_PLACES = {
    "Cascade": "cascade.cascade",
    "Committee": "ensemble.committee",
    "Ensemble": "ensemble.ensemble",
    "Twist": "ensemble.twist",
    "calibrate_cascade": "cascade.certify",
    "read_cascade": "cascade.calibration",
    "read_router": "router.pack_file",
    "write_cascade": "cascade.calibration",
}


def __getattr__(name: str) -> object:
    """Load what is asked for, and nothing else."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return value
