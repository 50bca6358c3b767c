"""A drafter pack: the weights of an eagle drafter for one model. On disk: `pack_file.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from offramp.draft.pack_config import DrafterConfig
from offramp.draft.side import SideWeights
from offramp.errors import CorruptModelError, InvalidRequestError
from offramp.model.config import ModelConfig

SHAPE = ("num_layers", "hidden_size", "vocab_size", "num_heads", "num_kv_heads", "head_dim")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrafterPack:
    """Config and weights; `folder` and `identity` are those of the files, of one that was read from files."""

    config: DrafterConfig
    weights: SideWeights
    folder: Path | None = None
    identity: str = ""  # sha256, in hex, of both files


def bind(pack: DrafterPack, *, model_hash: str, config: ModelConfig) -> None:
    """Check that a pack belongs to the model with that hash of its source tensors, and that it fits its shape.

    Raises InvalidRequestError for a pack of another model, naming both, CorruptModelError for one that lies about it.
    """
    own = pack.config
    if own.model != model_hash:
        raise InvalidRequestError(
            f"the drafter pack {_name(pack)} belongs to {own.model_name} with the tensor hash {own.model}, "
            f"the model loaded has {model_hash}",
            hint="a drafter works with exactly the weights that it was trained on: train one for this model",
            param="drafter",
        )
    for field in SHAPE:
        said, real = getattr(own, field), getattr(config, field)
        if said != real:
            raise CorruptModelError(
                f"the drafter pack {_name(pack)} says {field}={said}, the model has {real}",
                hint="its config.json was changed; fetch or train the pack again",
            )


def _name(pack: DrafterPack) -> str:
    return str(pack.folder) if pack.folder else f"of {pack.config.model_name}"
