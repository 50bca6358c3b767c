"""What methods read besides the model, by content: a pack that was made anew makes another run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path

from offramp.bench.run.method import Method
from offramp.errors import InvalidRequestError
from offramp.llm.loading import DEFAULT_WEIGHTS
from offramp.model.model_cache import default_cache
from offramp.model.plain import to_plain
from offramp.native.converted import ConvertedModel, open_model
from offramp.native.prepared import known_source_hash
from offramp.native.prepared_folder import PREPARED

MODEL = "draft_model"
OPTIONS = ("exits", "drafter", MODEL, "little_calibration")
"""Those that name files or folders."""
LETTERS = 16
"""Of a hash."""


def pack_hashes(methods: Iterable[Method]) -> dict[str, str]:
    """Hashes of the files and folders that methods name, by the names. What the package ships has its version.

    Raises InvalidRequestError for what can't be read, ModelError for a model that is none.
    """
    named = {getattr(method.flags, option): option for method in methods for option in OPTIONS}
    hashes = {}
    for name, option in named.items():
        try:
            if name is not None and Path(name).exists():
                hashes[name] = (_model(Path(name)) if option == MODEL else _contents(Path(name)))[:LETTERS]
        except OSError as error:
            raise InvalidRequestError(f"can't read {name}: {error.strerror}", hint="name a pack or a model") from error
    return hashes


def _model(place: Path) -> str:
    """Of what makes a model: its tensors, what is known of them, and the contents of the small files in its folder.

    The tensors' hash comes from their prepared form, once there is one: to hash them is to read them all.
    """
    model = open_model(place)
    if isinstance(model, ConvertedModel):
        tensors = model.source_hash
        large: tuple[Path, ...] = (model.weights_path,)
    else:
        known = known_source_hash(model.files, DEFAULT_WEIGHTS, default_cache() / PREPARED)
        tensors, large = known or model.source_hash(), model.files
    tokenizer = {} if isinstance(model.tokenizer_source, Path) else model.tokenizer_source
    others = _contents(place, without=large) if place.is_dir() else None
    facts = [tensors, to_plain(model.config), to_plain(model.generation), tokenizer, others]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _contents(place: Path, without: Collection[Path] = ()) -> str:
    """Of a file, or of the names and contents of a folder's files, some of them left out."""
    whole = hashlib.sha256()
    for each in [place] if place.is_file() else sorted(each for each in place.iterdir() if each.is_file()):
        if each in without:
            continue
        with each.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{each.name} {content}\n".encode(errors="replace"))
    return whole.hexdigest()
