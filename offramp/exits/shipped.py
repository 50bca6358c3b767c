"""Exit packs that come with the package, each named after its model. Their recipes lie in their provenance."""

from __future__ import annotations

from pathlib import Path

PACKS = Path(__file__).parent.parent / "packs"


def shipped_packs() -> list[str]:
    """The names of those packs."""
    return sorted(path.name for path in PACKS.iterdir() if path.is_dir()) if PACKS.is_dir() else []


def pack_folder(place: str | Path) -> Path:
    """The folder that a user means: the path, or a shipped pack's for a bare name that is no path here."""
    path = Path(place)
    return PACKS / path if not path.exists() and str(place) in shipped_packs() else path


def is_shipped(folder: Path) -> bool:
    """Whether a pack's folder, however it was written, is one of them: everybody's, and not to be written to."""
    return folder.resolve().parent == PACKS.resolve()
