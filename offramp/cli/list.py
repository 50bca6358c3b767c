"""`offramp list`: the models in the cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.cli import options
from offramp.cli.messages import mebibytes, say
from offramp.cli.streams import put

if TYPE_CHECKING:
    from offramp.model.sources import CachedModel
    from offramp.native.prepared_folder import PreparedFile


def command(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the fetched models: name, size, size of the weights prepared from it, path.

    Models of hf: live in the hub's own cache and are not listed; prepared weights of other models are noted on stderr.
    """
    from offramp.model.model_cache import default_cache
    from offramp.model.sources import cached_models
    from offramp.native.prepared_folder import PREPARED, prepared_files

    models, prepared = cached_models(), prepared_files(default_cache() / PREPARED)
    sizes = {model.path: _size(file for file in prepared if file.made_from(model.path)) for model in models}
    if as_json:
        put(json.dumps([_as_object(model, sizes) for model in models], ensure_ascii=False) + "\n")
        return
    if not models:
        say("no models fetched yet: offramp pull NAME")
    width = max((len(model.name) for model in models), default=0)
    for model in models:
        held = f"{mebibytes(model.num_bytes):>10}  {mebibytes(sizes[model.path]):>10} prepared"
        put(f"{model.name:<{width}}  {held}  {model.path}\n")
    _note_others([file for file in prepared if not any(file.made_from(model.path) for model in models)])


def _as_object(model: CachedModel, sizes: Mapping[Path, int]) -> dict[str, object]:
    return {
        "name": model.name,
        "source": model.source,
        "path": str(model.path),
        "num_bytes": model.num_bytes,
        "prepared_bytes": sizes[model.path],
    }


def _note_others(files: list[PreparedFile]) -> None:
    """Prepared weights of models that are not listed, and those that no start will use."""
    lost = [file for file in files if file.lost]
    elsewhere: dict[Path, int] = {}
    for file in files:
        if file.origin is not None and not file.lost:
            elsewhere[file.origin.model] = elsewhere.get(file.origin.model, 0) + file.num_bytes
    for path, num_bytes in elsewhere.items():
        say(f"note: {mebibytes(num_bytes)} prepared from {path}")
    if lost:
        say(f"note: {mebibytes(_size(lost))} prepared from models that have gone or changed: offramp remove --prepared")


def _size(files: Iterable[PreparedFile]) -> int:
    return sum(file.num_bytes for file in files)
