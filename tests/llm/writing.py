"""A tiny chat model and a smaller one that writes for it, calibrations of the pair, and settings for both."""

from __future__ import annotations

from pathlib import Path

from offramp.collaborate.big_little_certificate import CertifiedPair, write_pairs
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.exits.certificate import Measured, SamplingSettings
from offramp.llm.draft_model import with_draft_model
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.little import pair_of
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.serving import Serving
from tests.llm.test_draft_model import write_model

LITTLE_ALONE = BigLittlePolicy(fallback=0.0, rollback=1e6, max_run=64)
SOME = BigLittlePolicy(fallback=0.0, rollback=4.0, max_run=3)


def little_model(folder: Path) -> Path:
    """Of two layers, with the tokenizer of the tests."""
    return write_model(folder / "little.gguf")


def pair(big: Path | str, little: Path) -> LoadedModel:
    return with_draft_model(load_model(big, threads=1), little, threads=1)


def certify(loaded: LoadedModel, path: Path, *risks: float, gain: float = 1.3, ignore_eos: bool = True) -> Path:
    """A calibration of the pair, so it says: the larger the risk, the more the little model writes."""
    assert loaded.draft is not None
    entries = [
        CertifiedPair(
            risk=risk,
            delta=0.05,
            loss="tokens",
            policy=LITTLE_ALONE if number else SOME,
            circumstances=pair_of(loaded, loaded.draft),
            sampling=SamplingSettings(ignore_eos=ignore_eos),
            max_tokens=64,
            measured=Measured(num_prompts=400, mean_loss=0.01, p_value=0.001, depth=4.0, gain=gain + number / 10),
            little_share=0.75,
        )
        for number, risk in enumerate(risks)
    ]
    write_pairs(path, entries, {})
    return path


def writes(little: Path, mode: str = "lossless", *, risk: float | None = None, **settings: object) -> Serving:
    """Without drafts unless a request asks for them."""
    return Serving(
        mode=mode,
        draft="off",
        draft_model=little,
        exits=ExitSettings(risk=risk),
        little=LittleSettings(**settings),  # type: ignore[arg-type]
    )
