"""What methods read besides the model, by content: a pack that was made anew makes another run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from offramp.bench.run.method import Method
from offramp.errors import InvalidRequestError

OPTIONS = ("exits", "drafter", "draft_model", "little_calibration")
"""Those that name files or folders."""
LETTERS = 16
"""Of a hash."""


def pack_hashes(methods: Iterable[Method]) -> dict[str, str]:
    """Hashes of the files and folders that methods name, by the names. What the package ships has its version.

    Raises InvalidRequestError for what can't be read.
    """
    named = dict.fromkeys(getattr(method.flags, option) for method in methods for option in OPTIONS)
    hashes = {}
    for name in named:
        try:
            if name is not None and Path(name).exists():
                hashes[name] = _hash(Path(name))
        except OSError as error:
            raise InvalidRequestError(f"can't read {name}: {error.strerror}", hint="name a pack or a model") from error
    return hashes


def _hash(place: Path) -> str:
    """Of a file's content, or of the names and contents of a folder's files."""
    whole = hashlib.sha256()
    for each in [place] if place.is_file() else sorted(each for each in place.iterdir() if each.is_file()):
        with each.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{each.name} {content}\n".encode(errors="replace"))
    return whole.hexdigest()[:LETTERS]
