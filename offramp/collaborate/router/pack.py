"""A router pack: a router over what one model makes of prompts, with the calibration of its thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from offramp.collaborate.router.kind import Router
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.threshold import ThresholdCalibration
from offramp.errors import CorruptModelError, InvalidRequestError
from offramp.model.config import ModelConfig


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
    own = pack.config
    name = str(pack.folder) if pack.folder else f"over {own.model_name}"
    if own.model != model_hash:
        raise InvalidRequestError(
            f"the router pack {name} reads embeddings of {own.model_name} with the tensor hash {own.model}, "
            f"the model loaded has {model_hash}",
            hint="a router works over exactly the weights that it was trained over: train one for this model",
            param="router",
        )
    for field in ("num_layers", "hidden_size"):
        said, real = getattr(own, field), getattr(config, field)
        if said != real:
            raise CorruptModelError(
                f"the router pack {name} says {field}={said}, the model has {real}",
                hint="its config.json was changed; fetch or train the pack again",
            )
