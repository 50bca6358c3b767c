"""A router pack: a router over what one model makes of prompts, with the calibration of its thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from offramp.collaborate.router.kind import Router
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.threshold import ThresholdCalibration
from offramp.model.config import ModelConfig
from offramp.model.pack_header import check_belongs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouterPack:
    """Config, router and calibration; `folder` and `identity` are those of its files, if it has any."""

    config: RouterConfig
    router: Router
    calibration: ThresholdCalibration
    folder: Path | None = None
    identity: str = ""  # sha256, in hex, of both files


def bind(pack: RouterPack, *, model_hash: str, config: ModelConfig) -> None:
    """Check that a pack reads embeddings of the model with that hash of its source tensors, and fits its shape.

    Raises InvalidRequestError for a pack over another model, naming both, CorruptModelError for one that lies about it.
    """
    check_belongs(
        pack.config,
        found_hash=model_hash,
        found=config,
        shape=("num_layers", "hidden_size"),
        pack=f"the router pack {pack.folder or f'over {pack.config.model_name}'}",
        belongs="reads embeddings of",
        hint="a router works over exactly the weights that it was trained over: train one for this model",
        param="router",
    )
