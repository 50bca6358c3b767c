"""The checkpoint that training starts from."""

from __future__ import annotations

from offramp.errors import UnsupportedModelError
from offramp.model.checkpoint import Checkpoint
from offramp.model.sources import resolve
from offramp.native.converted import ConvertedModel, open_model


def open_source(model: str) -> Checkpoint:
    """A model by name, path or package. Raises UnsupportedModelError for a converted one, whose weights are packed."""
    opened = open_model(resolve(model))
    if isinstance(opened, ConvertedModel):
        raise UnsupportedModelError(
            f"{model} is a converted model: training can't read its weights",
            hint="train with the model that it was converted from; exit packs fit both",
        )
    return opened
