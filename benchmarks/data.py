"""The folder of data that benchmarks bring no copy of, and its files."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

DATA = "OFFRAMP_DATA"


def data_folder(names: Collection[str], *, holds: str, lacks: str = "prompts") -> Path:
    """The folder with files of these names; ends the program with what is missing.

    `holds` says what the whole folder has, `lacks` what the benchmark has none of.
    """
    text = os.environ.get(DATA)
    hint = f"hint: set {DATA} to a folder with {holds}"
    if not text:
        raise SystemExit(f"error: {DATA} is not set, and this benchmark brings no {lacks} of its own\n{hint}")
    folder = Path(text).expanduser()
    for name in names:
        if not (folder / name).is_file():
            raise SystemExit(f"error: {folder / name} does not exist\n{hint}")
    return folder


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
