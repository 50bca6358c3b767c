"""Exit packs for the tiny chat model on disk, and calibrations for them."""

from __future__ import annotations

from pathlib import Path

from offramp.core import Ids
from offramp.engine.exit_points import ExitBatching
from offramp.exits.certificate import FILE_NAME, CertifiedEntry, Measured, SamplingSettings, write_calibration
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.pack_config import Kind, PredictorKind
from offramp.exits.pack_file import write_pack
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.loading import LoadedModel, load_model, with_exits
from offramp.llm.promises import circumstances
from offramp.llm.serving import Serving
from offramp.model.checkpoint import open_checkpoint
from offramp.testing.packs import random_pack

DEPTH = 4  # layers of the tiny chat model
ALWAYS, NEVER = 0.0, 2.0


def toy_pack(
    folder: Path,
    model: Path,
    *,
    layers: tuple[int, ...] = (1, 2, 3),
    kind: Kind = "shared",
    vocab_ids: Ids | None = None,
    predictors: PredictorKind | None = None,
) -> Path:
    """A pack of random weights for a model, in a folder."""
    checkpoint = open_checkpoint(model)
    pack = random_pack(
        checkpoint.config,
        model=checkpoint.source_hash(),
        layers=layers,
        kind=kind,
        vocab_ids=vocab_ids,
        predictors=predictors,
    )
    write_pack(folder, pack)
    return folder


def entry(
    loaded: LoadedModel,
    risk: float = 0.05,
    *,
    gain: float = 1.3,
    max_tokens: int = 64,
    policy: FrozenPolicy | None = None,
    sampling: SamplingSettings | None = None,
    batching: ExitBatching = "compact",
) -> CertifiedEntry:
    """Certified on this model with its pack, so it says."""
    return CertifiedEntry(
        risk=risk,
        delta=0.05,
        loss="tokens",
        policy=policy or FrozenPolicy(layers=(2,), thresholds=(ALWAYS,), measure="margin"),
        circumstances=circumstances(loaded, batching),
        sampling=sampling or SamplingSettings(),
        max_tokens=max_tokens,
        measured=Measured(num_prompts=400, mean_loss=0.01, p_value=0.001, depth=2.5, gain=gain),
    )


def with_pack(model: Path, pack: Path) -> LoadedModel:
    """The model, loaded with a pack and what calibration is there."""
    return with_exits(load_model(model, threads=1), pack)


def certified(model: Path, pack: Path, *risks: float, ignore_eos: bool = True) -> LoadedModel:
    """The model with a pack whose calibration keeps these risks: the larger one, the earlier tokens leave."""
    loaded, entries = with_pack(model, pack), []
    for n, risk in enumerate(risks):
        policy = FrozenPolicy(layers=(3 - n,), thresholds=(ALWAYS,), measure="margin")
        sampling = SamplingSettings(ignore_eos=ignore_eos)
        entries.append(entry(loaded, risk, gain=1.2 + n, policy=policy, sampling=sampling))
    write_calibration(pack / FILE_NAME, entries, {})
    return with_pack(model, pack)


def serving(pack: Path, mode: str = "lossless", **settings: object) -> Serving:
    """With a pack, no drafts unless a mode allows them, and exit settings by name."""
    return Serving(mode=mode, draft="off", exits=ExitSettings(pack=pack, **settings))  # type: ignore[arg-type]
