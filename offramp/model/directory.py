"""A Hugging Face model directory: its files besides the weights, and which hold the weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from offramp.model.metadata import read_json
from offramp.model.safetensors import INDEX_FILE, SINGLE_FILE

TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
"""What we read of a model besides its weights; glob patterns below its directory."""


def text_files(directory: Path) -> list[Path]:
    """Those of them that there are."""
    return [file for pattern in TEXT_FILES for file in sorted(directory.glob(pattern))]


def copy_texts(source: Path, target: Path) -> None:
    """Copy the files of one directory to another. Raises OSError."""
    for file in text_files(source):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)


def weight_files(directory: Path) -> list[str]:
    """Names of the safetensors files that make the model up: those of its index, else the single one."""
    if not (directory / INDEX_FILE).is_file():
        return [SINGLE_FILE]
    places = read_json(directory / INDEX_FILE).group("weight_map")
    return sorted({file for file in (places.values if places else {}).values() if isinstance(file, str)})
