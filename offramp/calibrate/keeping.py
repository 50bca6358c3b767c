"""What a calibration file keeps when another calibration is written into it: the entries of other settings.

Settings are what an entry holds for: the engine (`circumstances`), how tokens are drawn, and how many there may be.
Entries of the same settings are replaced, whatever their risks: they come from one calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic

from offramp.calibrate.entries import Entry
from offramp.errors import ModelError
from offramp.exits.certificate import Certified
from offramp.model.metadata import read_json

EARLIER = "earlier"
"""In a provenance: those of the entries that were kept, newest first."""


@dataclass(frozen=True, slots=True, eq=False)
class Beside(Generic[Entry]):
    """What stays of a file."""

    entries: Sequence[Entry] = ()
    provenances: Sequence[Mapping[str, object]] = ()  # how they came about, newest first
    damage: str | None = None  # why nothing of a file that is there could be read


def kept_beside(path: Path, new: Sequence[Entry], read: Callable[[Path], list[Entry]]) -> Beside[Entry]:
    """The entries of a file that hold for other settings than the new ones; none without a file."""
    if not path.exists():
        return Beside()
    try:
        old = read(path)
        provenance = read_json(path).group("provenance")
    except ModelError as error:
        return Beside(damage=error.message)
    replaced = [settings_of(entry) for entry in new]
    entries = [entry for entry in old if settings_of(entry) not in replaced]
    if not entries or provenance is None:
        return Beside(entries)
    earlier = provenance.values.get(EARLIER)
    latest = {name: value for name, value in provenance.values.items() if name != EARLIER}
    told = [latest, *(earlier if isinstance(earlier, list) else [])]
    kept = [settings_of(entry) for entry in entries]
    return Beside(entries, [each for each in told if isinstance(each, dict) and _is_of(each, kept)])


def settings_of(entry: Certified) -> dict[str, object]:
    """As JSON."""
    return {
        "circumstances": asdict(entry.circumstances),
        "sampling": asdict(entry.sampling),
        "max_tokens": entry.max_tokens,
    }


def _is_of(provenance: Mapping[str, object], kept: Sequence[dict[str, object]]) -> bool:
    """Whether it tells of entries that are kept; one that names no settings may."""
    settings = provenance.get("settings")
    return settings is None or settings in kept
