"""Models from the Hugging Face hub, kept in the hub's own cache folder."""

from __future__ import annotations

import re
from pathlib import Path

from offramp.errors import InvalidRequestError, ModelNotFoundError
from offramp.model.model_cache import storage_errors

HUB = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(/(?P<file>[^@]+\.gguf))?(@(?P<revision>[\w./-]+))?")
FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer*")
"""What a model directory needs; never pickled weights."""


def resolve_hub(source: str) -> Path:
    """The local copy of `hf:org/name[@revision]`, or of one file `hf:org/name/file.gguf[@revision]`."""
    match = HUB.fullmatch(source)
    if match is None:
        raise InvalidRequestError(
            f"{source!r} is not a hub model", hint="write hf:org/name, hf:org/name@revision or hf:org/name/file.gguf"
        )
    repo, file, revision = match["repo"], match["file"], match["revision"]
    path = _fetch(source, repo, file, revision)
    if not file and not ((path / "config.json").is_file() and any(path.glob("*.safetensors"))):
        raise ModelNotFoundError(
            f"{source} holds no config.json with safetensors weights",
            hint="for a repository of GGUF files name one of them: hf:org/name/file.gguf",
        )
    return path


def _fetch(source: str, repo: str, file: str | None, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    with storage_errors(Path(constants.HF_HUB_CACHE)):
        try:
            if file:
                return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision))
            return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(FILES)))
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
