"""A drafter pack: the weights of an eagle drafter for one model. On disk: `pack_file.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from offramp.draft.pack_config import DrafterConfig
from offramp.draft.side import SideWeights
from offramp.model.config import ModelConfig
from offramp.model.pack_header import check_belongs

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
    check_belongs(
        pack.config,
        found_hash=model_hash,
        found=config,
        shape=SHAPE,
        pack=f"the drafter pack {pack.folder or f'of {pack.config.model_name}'}",
        hint="a drafter works with exactly the weights that it was trained on: train one for this model",
        param="drafter",
    )
