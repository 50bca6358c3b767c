"""Which modes and dynamic methods can be honoured now; everything else is refused by name."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.draft import make_drafter
from offramp.errors import InvalidRequestError

MODES = ("lossless", "full")
"""Both run every layer for every token."""

MISSING: Mapping[str, str] = {
    "calibrated": "it needs early exits with a calibration, and this version has neither",
    "unchecked": "it needs early exits, and this version has none",
}


def check_options(*, mode: str, draft: str, exits: str | None) -> None:
    """Refuse a mode, drafter or exit pack that this version can't run."""
    if mode not in MODES:
        reason = f": {MISSING[mode]}" if mode in MISSING else " is no mode"
        raise InvalidRequestError(
            f"mode={mode!r}{reason}", hint=f"modes of this version: {', '.join(MODES)}", param="mode"
        )
    make_drafter(draft)  # refuses an unknown name
    if exits is not None:
        raise InvalidRequestError(
            f"exits={exits!r}: this version has no early exits", hint="leave exits unset", param="exits"
        )
