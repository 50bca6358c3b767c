"""The drafter pack of a loaded model: read, bound to the model, made to run beside its executor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from offramp.draft import OFF
from offramp.draft.pack import SHAPE, DrafterPack, bind
from offramp.draft.pack_file import read_drafter, shipped_drafter
from offramp.draft.side import side_config
from offramp.draft.side_model import SideModel
from offramp.errors import UnsupportedModelError
from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.model.config import ModelConfig
from offramp.model.heads import HeadWeights
from offramp.native import NativeExecutor
from offramp.native.beside import side_executor
from offramp.native.kv import KvType, page_bytes

SHIPPED_UNASKED = False
"""Whether a model drafts with the shipped pack that was trained for it, if there is one, though nobody named it."""


def with_drafter(loaded: LoadedModel, place: str | Path | None) -> LoadedModel:
    """The model with the drafter pack of a folder or name; "off" is none, None as `SHIPPED_UNASKED` says.

    Raises what reading and binding a pack raise.
    """
    if place == OFF or (place is None and not SHIPPED_UNASKED):
        return loaded
    if place is None:
        pack = shipped_drafter(lambda config: config.model == loaded.source_hash)
        return loaded if pack is None else join_drafter(loaded, pack)
    return join_drafter(loaded, read_drafter(place))


def planned_drafter(place: str | Path | None, config: ModelConfig) -> DrafterPack | None:
    """The pack whose memory a start plans for. Whether a shipped one is the model's, its shape tells well enough.

    Raises what reading a pack raises.
    """
    if place == OFF or (place is None and not SHIPPED_UNASKED):
        return None
    if place is None:
        return shipped_drafter(lambda own: all(getattr(own, name) == getattr(config, name) for name in SHAPE))
    return read_drafter(place)


def settled_drafter(loaded: LoadedModel, serving: Serving) -> Serving:
    """The settings name the pack that the model has, so that requests may name its drafter."""
    pack = loaded.drafter
    return serving if pack is None or serving.drafter is not None else replace(serving, drafter=pack.folder)


def join_drafter(loaded: LoadedModel, pack: DrafterPack) -> LoadedModel:
    """Both, if the pack belongs to the model. Raises what binding a pack raises."""
    bind(pack, model_hash=loaded.source_hash, config=loaded.config)
    return replace(loaded, drafter=pack)


def side_page_bytes(target: ModelConfig, pack: DrafterPack, kv: KvType) -> int:
    """Bytes that the pack's layer takes beside each page of its target's K/V."""
    return page_bytes(side_config(target, pack.config.width, pack.config.window), kv)


def side_model(loaded: LoadedModel, pack: DrafterPack) -> SideModel:
    """The pack's layer, ready to run, with pages for as many tokens as the model's own."""
    target = loaded.executor
    if not isinstance(target, NativeExecutor):
        raise UnsupportedModelError("a drafter pack runs beside the CPU executor alone", hint="leave drafter unset")
    return native_side(target, pack, target.num_pages)


def native_side(target: NativeExecutor, pack: DrafterPack, num_pages: int) -> SideModel:
    """The pack's layer beside an executor, with so many pages."""
    weights = pack.weights
    config = side_config(target.config, pack.config.width, pack.config.window)
    executor = side_executor(target, config, weights.layer, weights.norm, num_pages=num_pages)
    return SideModel(
        executor,
        executor.add_head(HeadWeights(vocab_ids=weights.vocab_ids)),
        executor.add_join(weights.first, weights.first_norm),
        executor.add_join(weights.next, weights.next_norm),
    )
