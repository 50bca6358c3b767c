"""An exit pack: heads, and perhaps predictors, for some exit points of one model. On disk: `pack_file.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offramp.exits.pack_config import PackConfig
from offramp.exits.predictors import LinearPredictor, MlpPredictor, Predictor
from offramp.model.config import ModelConfig
from offramp.model.executor import HeadId, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.model.pack_header import check_belongs


@dataclass(frozen=True, slots=True, eq=False)
class ExitHead:
    """What a pack has for one exit point. Its heads have no output matrix of their own."""

    head: HeadWeights
    predictor: LinearPredictor | MlpPredictor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitPack:
    """Config and weights; `folder` and `identity` are those of the files, of one that was read from files."""

    config: PackConfig
    exits: Mapping[int, ExitHead]  # by exit point, for each of config.layers
    folder: Path | None = None
    identity: str = ""  # sha256, in hex, of both files

    def __post_init__(self) -> None:
        assert tuple(sorted(self.exits)) == self.config.layers, (sorted(self.exits), self.config.layers)

    @property
    def predictors(self) -> dict[int, Predictor]:
        """By exit point; empty if the pack has none."""
        return {layer: each.predictor for layer, each in self.exits.items() if each.predictor is not None}


def bind(pack: ExitPack, *, model_hash: str, config: ModelConfig) -> None:
    """Check that a pack belongs to the model with that hash of its source tensors, and that it fits its shape.

    Raises InvalidRequestError for a pack of another model, naming both, CorruptModelError for one that lies about it.
    """
    check_belongs(
        pack.config,
        found_hash=model_hash,
        found=config,
        shape=("num_layers", "hidden_size", "vocab_size"),
        pack=f"the exit pack {pack.folder or f'of {pack.config.model_name}'}",
        hint="exits work with exactly the weights that they were trained on: train a pack for this model",
        param="exits",
    )


def load_heads(executor: LayerExecutor, pack: ExitPack) -> dict[int, HeadId]:
    """Give a pack's heads to the executor of the model that it is bound to; their numbers by exit point."""
    added: dict[int, HeadId] = {}  # by the identity of the weights: exit points without weights of their own share one
    for each in pack.exits.values():
        if id(each.head) not in added:
            added[id(each.head)] = executor.add_head(each.head)
    return {layer: added[id(each.head)] for layer, each in pack.exits.items()}
