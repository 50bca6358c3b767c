"""Models from the Hugging Face hub, kept in the hub's own cache folder.

Its token, its mirror (HF_ENDPOINT), its cache and its offline setting are those of the huggingface-hub package.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from offramp.errors import InvalidRequestError, ModelNotFoundError
from offramp.model.config_hf import config_from_hf
from offramp.model.directory import TEXT_FILES, weight_files
from offramp.model.metadata import read_json
from offramp.model.model_cache import storage_errors
from offramp.model.safetensors import INDEX_FILE

HUB = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(/(?P<file>[^@]+\.gguf))?(@(?P<revision>[\w./-]+))?")

CONFIG_FILE = "config.json"


def resolve_hub(source: str) -> Path:
    """The local copy of `hf:org/name[@revision]`, or of one file `hf:org/name/file.gguf[@revision]`."""
    match = HUB.fullmatch(source)
    if match is None:
        raise InvalidRequestError(
            f"{source!r} is not a hub model", hint="write hf:org/name, hf:org/name@revision or hf:org/name/file.gguf"
        )
    repo, file, revision = match["repo"], match["file"], match["revision"]
    if file:
        return _fetch(source, repo, revision, file=file)
    path = _fetch(source, repo, revision, patterns=[*TEXT_FILES, INDEX_FILE])
    if (path / CONFIG_FILE).is_file():
        config_from_hf(read_json(path / CONFIG_FILE))  # what can't be run is refused before its weights are fetched
        commit = path.name  # the weights are of the same one
        _fetch(source, repo, commit, patterns=[glob.escape(name) for name in weight_files(path)])
    if not ((path / CONFIG_FILE).is_file() and any(path.glob("*.safetensors"))):
        raise ModelNotFoundError(
            f"{source} holds no {CONFIG_FILE} with safetensors weights",
            hint="of GGUF files name one: hf:org/name/file.gguf; pickled weights are never opened",
        )
    return path


def _fetch(
    source: str, repo: str, revision: str | None, *, file: str | None = None, patterns: Sequence[str] = ()
) -> Path:
    """The local path of one file, or of the directory with the files that match."""
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    with storage_errors(Path(constants.HF_HUB_CACHE)):
        try:
            if file:
                return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision))
            return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))
        except (LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError) as error:
            raise ModelNotFoundError(
                f"can't fetch {source}: the hub is out of reach, and the model is not in its cache",
                hint="connect to the network once, or give the path of a model file",
            ) from error
        except (HfHubHTTPError, HFValidationError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelNotFoundError(
                f"can't fetch {source}: {reason}", hint="check the name and revision; gated models need `hf auth login`"
            ) from error
