"""Packs that come with the package, each named after its model. Their recipes lie in their provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

PACKS = Path(__file__).parent.parent / "packs"

PackKind = Literal["exits", "drafters"]
"""The folder within `PACKS`."""


def shipped_packs(kind: PackKind) -> list[str]:
    """The names of those packs."""
    return [folder.name for folder in shipped_folders(kind)]


def shipped_folders(kind: PackKind) -> list[Path]:
    """Where they lie, by name."""
    folder = PACKS / kind
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def pack_folder(kind: PackKind, place: str | Path) -> Path:
    """The folder that a user means: the path, or a shipped pack's for a bare name that is no path here."""
    path = Path(place)
    return PACKS / kind / path if not path.exists() and str(place) in shipped_packs(kind) else path


def told_names(kind: PackKind) -> str:
    """What a hint ends with that tells of them; empty where there are none."""
    names = shipped_packs(kind)
    return f"; by name there are: {', '.join(names)}" if names else ""


def is_shipped(folder: Path) -> bool:
    """A pack that is everybody's: nothing of a user's belongs into its folder."""
    return folder.resolve().parent.parent == PACKS.resolve()
