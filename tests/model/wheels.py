"""Wheels that hold a model, true or lying."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

MODEL = {"toy_model/toy.gguf": b"GGUF" * 1000, "toy_model/__init__.py": b""}


def build_wheel(
    folder: Path,
    package: str = "toy-model",
    version: str = "1.0",
    files: dict[str, bytes] = MODEL,
    *,
    hashes: dict[str, str] | None = None,
    unlisted: tuple[str, ...] = (),
    extra_rows: tuple[str, ...] = (),
) -> Path:
    """A wheel with a true RECORD; keywords make it lie."""
    stem = f"{package.replace('-', '_')}-{version}"
    rows = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},{(hashes or {}).get(name, 'sha256=' + digest)},{len(content)}")
    rows = [row for row in rows if row.split(",")[0] not in unlisted] + list(extra_rows)
    record = f"{stem}.dist-info/RECORD"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(record, "\n".join([*rows, f"{record},,"]))
    return wheel
