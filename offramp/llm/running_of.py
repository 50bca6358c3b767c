"""How a loaded model runs, as certificates of two models name it."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.llm.loading import LoadedModel
from offramp.model.config_identity import config_identity


def running_of(loaded: LoadedModel) -> Mapping[str, str]:
    """Config, formats of the weights, and K/V type: other ones give other answers, of the same tensors."""
    return {"config": config_identity(loaded.config), "weights": loaded.formats_in_words, "kv": loaded.kv}
