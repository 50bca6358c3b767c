"""A model directory: its files besides the weights, its chat templates, and which files hold the weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from offramp.model.gguf import MetadataValue
from offramp.model.metadata import read_json, read_text
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
GGUF_TEMPLATE = "tokenizer.chat_template"
"""Where GGUF metadata have a chat template, and behind a dot others by name."""


def text_files(directory: Path) -> list[Path]:
    """Those of them that there are."""
    return [file for pattern in TEXT_FILES for file in sorted(directory.glob(pattern))]


def copy_texts(source: Path, target: Path) -> None:
    """Copy the files of one directory to another. Raises OSError."""
    for file in text_files(source):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)


def template_files(directory: Path) -> dict[str, str]:
    """Chat templates in files of their own, by name. Raises a ModelError for one that can't be read."""
    main = directory / "chat_template.jinja"
    files = {"default": main} if main.is_file() else {}
    files |= {path.stem: path for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))}
    return {name: read_text(path) for name, path in files.items()}


def with_templates(metadata: Mapping[str, MetadataValue], directory: Path) -> dict[str, MetadataValue]:
    """GGUF metadata of a tokenizer, with the chat templates of the model's directory, if it has any, for its own."""
    files = template_files(directory)
    if not files:
        return dict(metadata)
    others = {key: value for key, value in metadata.items() if not key.startswith(GGUF_TEMPLATE)}
    named = {GGUF_TEMPLATE if name == "default" else f"{GGUF_TEMPLATE}.{name}": text for name, text in files.items()}
    return {**others, **named}


def weight_files(directory: Path) -> list[str]:
    """Names of the safetensors files that make the model up: those of its index, else the single one."""
    if not (directory / INDEX_FILE).is_file():
        return [SINGLE_FILE]
    places = read_json(directory / INDEX_FILE).group("weight_map")
    return sorted({file for file in (places.values if places else {}).values() if isinstance(file, str)})
