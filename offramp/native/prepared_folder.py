"""The folder of prepared weights: which models they were made from, and which of them no start will use again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from offramp.model.model_cache import storage_errors
from offramp.native.prepared import ABANDONED_SECONDS, Origin, read_origin
from offramp.native.prepared_file import SUFFIX
from offramp.whole_file import PARTIAL

PREPARED = "prepared"
"""Name of the folder within the cache."""


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """One file of the folder; `origin` is None if it can't be told."""

    path: Path
    num_bytes: int
    origin: Origin | None

    @property
    def lost(self) -> bool:
        """Whether no start will find it: its model is gone or has changed, or another version of offramp wrote it."""
        try:
            return self.origin is None or self.origin.key != self.path.stem
        except OSError:  # no such file any more
            return True

    def made_from(self, model: Path) -> bool:
        """Whether it was made from that model file, or from files of that folder."""
        root = model.resolve()
        return self.origin is not None and any(file.is_relative_to(root) for file in self.origin.files)


def prepared_files(folder: Path) -> list[PreparedFile]:
    """Every prepared file, and what killed writers left behind; by name."""
    whole = [PreparedFile(path, path.stat().st_size, read_origin(path)) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    left = [path for path in sorted(folder.glob(f".*{PARTIAL}")) if _is_abandoned(path)]
    return [*whole, *(PreparedFile(path, path.stat().st_size, None) for path in left)]


def remove_prepared(files: Iterable[PreparedFile]) -> int:
    """Delete files; the bytes freed. A process that has mapped one keeps what it mapped."""
    freed = 0
    for file in files:
        with storage_errors(file.path.parent):
            file.path.unlink(missing_ok=True)
            file.path.with_suffix(".lock").unlink(missing_ok=True)
        freed += file.num_bytes
    return freed


def _is_abandoned(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
