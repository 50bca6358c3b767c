"""How a loaded model runs, as certificates of two models name it."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.collaborate.router.certificate import ModelRunning
from offramp.llm.loading import LoadedModel
from offramp.model.config_identity import config_identity


def running_of(loaded: LoadedModel) -> Mapping[str, str]:
    """Config, formats of the weights, and K/V type: other ones give other answers, of the same tensors."""
    return {"config": config_identity(loaded.config), "weights": loaded.formats_in_words, "kv": loaded.kv}


def model_running(loaded: LoadedModel) -> ModelRunning:
    """The same with its chat templates, as routers' certificates name it."""
    return ModelRunning(**running_of(loaded), template=loaded.template.identity)
