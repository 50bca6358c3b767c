"""The folder of fetched models: found whole or not at all, whoever is killed and however many processes ask at once.

A model is made in a `.partial-` folder, under a lock that dies with its process, and renamed into place at the end. Its
manifest says where it came from and how large each file is; a model that disagrees with its manifest is made anew.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import ResourceError

MANIFEST = ".offramp.json"
PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One unpacked package in the cache."""

    package: str
    version: str
    folder: Path
    num_bytes: int


def default_cache() -> Path:
    """$OFFRAMP_CACHE, or $XDG_CACHE_HOME/offramp, or ~/.cache/offramp."""
    if own := os.environ.get("OFFRAMP_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "offramp"


@dataclass(frozen=True, slots=True)
class ModelCache:
    """Models under `root`/models, one folder a package and version."""

    root: Path

    @property
    def models(self) -> Path:
        return self.root / "models"

    def entries(self) -> list[Entry]:
        """Every whole model, by folder name."""
        folders = sorted(self.models.iterdir()) if self.models.is_dir() else []
        found = (_read_entry(folder) for folder in folders if not folder.name.startswith("."))
        return [entry for entry in found if entry is not None]

    def find(self, package: str, version: str | None) -> Entry | None:
        """The whole model of that version, or of the newest in the cache if no version is named."""
        if version is not None:
            entry = _read_entry(self.models / f"{package}-{version}")
            return entry if entry and (entry.package, entry.version) == (package, version) else None
        entries = [entry for entry in self.entries() if entry.package == package]
        return max(entries, key=lambda entry: entry.folder.stat().st_mtime, default=None)

    def make(self, package: str, version: str | None, fill: Callable[[Path], tuple[Path, str]]) -> Entry:
        """Find the model or make it: `fill(scratch)` returns the finished folder within `scratch` and its version.

        Of several processes that ask for the same package, one makes it and the others wait.
        """
        with storage_errors(self.root), self._lock(package):
            if entry := self.find(package, version):
                return entry
            scratch = self._scratch(package)
            try:
                finished, actual = fill(scratch)
                entry = self._install(finished, package, actual)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            return entry

    def remove(self, entry: Entry) -> int:
        """Delete a model; the bytes freed. A process that has mapped its file keeps what it mapped."""
        with storage_errors(self.root), self._lock(entry.package):
            if not entry.folder.exists():
                return 0
            doomed = self._scratch(entry.package)
            entry.folder.rename(doomed / "removed")
            shutil.rmtree(doomed)
        return entry.num_bytes

    def _scratch(self, package: str) -> Path:
        """A new folder to work in; those that killed processes left are swept away. The caller holds the lock."""
        prefix = f"{PARTIAL}{package}="  # `=` is in no package name
        for left in self.models.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.models))

    def _install(self, finished: Path, package: str, version: str) -> Entry:
        sizes = {str(path.relative_to(finished)): path.stat().st_size for path in _files(finished)}
        manifest = {"package": package, "version": version, "sizes": sizes}
        (finished / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        folder = self.models / f"{package}-{version}"
        shutil.rmtree(folder, ignore_errors=True)  # whatever `find` did not accept
        finished.rename(folder)
        return Entry(package, version, folder, sum(sizes.values()))

    @contextmanager
    def _lock(self, package: str) -> Iterator[None]:
        self.models.mkdir(parents=True, exist_ok=True)
        with (self.models / f".lock-{package}").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that works on {package}", file=sys.stderr, flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk or an unwritable folder into a ResourceError that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(
                f"the disk is full: can't write to the cache folder {folder}",
                hint="free some space, or point OFFRAMP_CACHE to another disk",
            ) from error
        raise ResourceError(
            f"can't write to the cache folder {folder}: {error.strerror}",
            hint="point OFFRAMP_CACHE to a folder you can write to",
        ) from error


def _read_entry(folder: Path) -> Entry | None:
    """The model in a folder, or None unless it is all there."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes = manifest["sizes"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return Entry(manifest["package"], manifest["version"], folder, sum(sizes.values())) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
