"""The exit pack of a loaded model: read, bound to the model, its heads in the executor, its calibration at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import CorruptModelError, ModelError
from offramp.exits.certificate import FILE_NAME, CertifiedEntry, read_calibration
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.pack import ExitPack, bind, load_heads
from offramp.exits.pack_file import read_pack
from offramp.exits.predictors import Predictor
from offramp.exits.similarity import Similarity
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.model.executor import HeadId, LayerExecutor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedExits:
    """A pack in use."""

    name: str  # the folder's: what requests call the pack
    folder: Path
    pack: ExitPack
    heads: Mapping[int, HeadId]  # by exit point
    entries: tuple[CertifiedEntry, ...]  # of its calibration, whether they fit this engine or not
    damage: str | None = None  # why a calibration that is there can't be read: it certifies nothing

    def policy(self, frozen: FrozenPolicy) -> ThresholdPolicy:
        """A frozen policy over this pack's heads; its exit points and predictors must be the pack's."""
        return frozen.policy(self.heads, self.pack.predictors or None)

    def predictors(self, kind: str) -> Mapping[int, Predictor]:
        """Those of a kind, by exit point: the pack's own, which it may lack, or hidden-state similarity."""
        return dict.fromkeys(self.pack.config.layers, Similarity()) if kind == "similarity" else self.pack.predictors


def load_exits(place: str | Path, executor: LayerExecutor, model_hash: str) -> LoadedExits:
    """Read a pack, by folder or name, for the model of an executor, which gets its heads, once.

    Raises what reading and binding a pack raise. A calibration that can't be read is told by whoever needs it.
    """
    pack = read_pack(place)
    bind(pack, model_hash=model_hash, config=executor.config)
    entries: tuple[CertifiedEntry, ...] = ()
    damage = None
    try:
        entries = read_entries(pack)
    except ModelError as error:
        damage = error.message
    assert pack.folder is not None, "a pack that was read from a folder"
    return LoadedExits(
        name=pack.folder.resolve().name,
        folder=pack.folder,
        pack=pack,
        heads=load_heads(executor, pack),
        entries=entries,
        damage=damage,
    )


def read_entries(pack: ExitPack) -> tuple[CertifiedEntry, ...]:
    """Those of the calibration in a pack's folder; none without one.

    Raises CorruptModelError for one that is damaged, or contradicts the pack.
    """
    assert pack.folder is not None, "a pack that was read from a folder"
    path = pack.folder / FILE_NAME
    entries = tuple(read_calibration(path)) if path.exists() else ()
    for number, entry in enumerate(entries):
        if entry.circumstances.pack == pack.identity:  # another pack's fit nothing here, and say so when asked for
            _check_entry(entry, pack, f"{path}: entry {number}")
    return entries


def _check_entry(entry: CertifiedEntry, pack: ExitPack, where: str) -> None:
    """Measured on this very pack, it can only name exit points and predictors that the pack has."""
    foreign = set(entry.policy.layers) - set(pack.config.layers)
    if foreign or (entry.policy.predictor == "pack" and not pack.predictors):
        what = f"exits after layer {min(foreign)}" if foreign else "uses the pack's predictors"
        hint = "the file was changed: run `offramp calibrate` again"
        raise CorruptModelError(f"{where} {what}, and the pack has none", hint=hint)
