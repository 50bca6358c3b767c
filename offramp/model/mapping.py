"""Read-only memory maps of model files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offramp.errors import CorruptModelError, ModelNotFoundError

TRUNCATED_HINT = "the file is truncated or damaged; fetch it again"


def map_file(path: Path) -> NDArray[np.uint8]:
    """The file's bytes, mapped. Raises ModelNotFoundError if it can't be opened, CorruptModelError if it is empty."""
    try:
        if path.stat().st_size == 0:
            raise CorruptModelError(f"{path} is empty", hint=TRUNCATED_HINT)
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise ModelNotFoundError(f"can't read {path}: {error.strerror}", hint="check the path") from error
