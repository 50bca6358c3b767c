"""What a cascade's thresholds were calibrated on, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from offramp.collaborate.cascade.scorer import FIELDS as SCORER_FIELDS
from offramp.collaborate.cascade.scorer import Scorer
from offramp.collaborate.cascade.scores import SCORES, ScoreKind
from offramp.collaborate.covered import why_not_covered
from offramp.collaborate.running import CertificateCheck
from offramp.collaborate.threshold import ThresholdCalibration
from offramp.collaborate.threshold_fields import certified_fields, read_certified
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, ResourceError
from offramp.exits.certificate import SamplingSettings, group, only
from offramp.model.metadata import Fields, read_json
from offramp.model.pack_header import check_header, choice, model_hash
from offramp.whole_file import whole_file

LITTLE, BIG = "little", "big"
FORMAT, VERSION = "offramp-cascade", 1
FIELDS = (
    "model",
    "big_model",
    "score",
    "scorer",
    "sampling",
    "max_tokens",
    "sample",
    "certified",
    "running",
    "provenance",
)
CHECK = CertificateCheck(
    certificate="the calibration",
    how="measured",
    again="start the models as they were calibrated, or calibrate the cascade again",
    param="calibration",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BothRunning:
    """Two models as they run: other formats give other answers."""

    config: str  # what is computed with the little one's tensors: `config_identity`
    weights: str  # how many of its matrices run in which format: "q4 210, q8 1"
    kv: str
    big_config: str
    big_weights: str
    big_kv: str

    def check_fits(self, which: str, found: Mapping[str, str]) -> None:
        """Raise InvalidRequestError naming the first of config, weights and kv in which that model differs."""
        prefix = "" if which == LITTLE else "big_"
        CHECK.running(which, found, {name: getattr(self, f"{prefix}{name}") for name in found})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CascadeCalibration:
    """Holds for this little model and score, for answers drawn so, of at most so many tokens."""

    model: str  # hash of the little model's source tensors
    big_model: str | None = None  # that of the big one's; None: it was elsewhere, or nobody said
    score: str
    scorer: Scorer | None = None  # of a trained score
    sampling: SamplingSettings
    max_tokens: int | None  # None: up to the context's end
    thresholds: ThresholdCalibration
    running: BothRunning | None = None  # how both ran; None: nobody said

    def __post_init__(self) -> None:
        assert SCORES[self.score].trained == (self.scorer is not None), "a trained score with what was taught"

    def check_fits(self, found: str) -> None:
        """Raise InvalidRequestError if the little model is another one."""
        _check_model(LITTLE, self.model, found)

    def check_fits_big(self, found: str) -> None:
        """Raise InvalidRequestError if the big model is another one, as far as is known."""
        if self.big_model is not None:
            _check_model(BIG, self.big_model, found)

    def check_runs(self, which: str, found: Mapping[str, str]) -> None:
        """Raise InvalidRequestError if the little or big model runs otherwise, as far as is known.

        `found` are its config, weights and kv: a certificate is for answers that were made with these.
        """
        if self.running is not None:
            self.running.check_fits(which, found)

    def why_not(self, params: SamplingParams) -> str | None:
        """Why a certificate does not cover a request, naming the field; None: it does."""
        return why_not_covered(params, self.sampling, self.max_tokens)


def _check_model(which: str, wanted: str, found: str) -> None:
    if wanted != found:
        raise InvalidRequestError(
            f"the calibration belongs to a {which} model with the tensor hash {wanted}, the model loaded has {found}",
            hint="calibrate the cascade again, with this model",
            param="calibration",
        )


def write_cascade(path: Path, calibration: CascadeCalibration, provenance: Mapping[str, object] | None = None) -> None:
    """Keep it, whole or not at all; `provenance` says how it came about. Raises ResourceError."""
    thresholds = calibration.thresholds
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": calibration.model,
        "big_model": calibration.big_model,
        "score": calibration.score,
        "scorer": None if calibration.scorer is None else asdict(calibration.scorer),
        "sampling": asdict(calibration.sampling),
        "max_tokens": calibration.max_tokens,
        "sample": thresholds.scores.tolist(),
        "certified": certified_fields(thresholds.certified),
        "running": None if calibration.running is None else asdict(calibration.running),
        "provenance": dict(provenance or {}),
    }
    try:
        with whole_file(path) as file:
            file.write(json.dumps(content, indent=1, allow_nan=False).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(f"can't write {path}: {reason}", hint="check the folder and the disk") from error


def read_cascade(path: Path) -> CascadeCalibration:
    """Raises ModelNotFoundError if there is none, CorruptModelError naming the field."""
    content = Fields(read_json(path).values, str(path))
    check_header(content, FORMAT, VERSION, FIELDS)
    sample = np.array(content.numbers("sample"), dtype=np.float64)
    if len(sample) == 0 or (np.diff(sample) < 0).any() or not ((sample >= 0) & (sample < 1)).all():
        raise content.error("sample", "rising scores in [0, 1)")
    sampling = content.group("sampling")
    if sampling is None:
        raise content.error("sampling", "an object")
    score = choice(content, "score", {name: name for name in SCORES})
    return CascadeCalibration(
        model=model_hash(content),
        big_model=model_hash(content, "big_model") if content.has("big_model") else None,
        score=score,
        scorer=_scorer(content, SCORES[score]),
        sampling=SamplingSettings.read(sampling),
        max_tokens=content.integer("max_tokens") if content.has("max_tokens") else None,
        thresholds=ThresholdCalibration(scores=sample, certified=read_certified(content)),
        running=_running(content),
    )


def _running(content: Fields) -> BothRunning | None:
    if not content.has("running"):
        return None
    found = group(content, "running", BothRunning)
    return BothRunning(**{each.name: found.text(each.name) for each in fields(BothRunning)})


def _scorer(content: Fields, kind: ScoreKind) -> Scorer | None:
    """What a trained score needs, and no other has."""
    found = content.group("scorer")
    if kind.trained != (found is not None):
        raise content.error("scorer", "what was taught, with a trained score" if kind.trained else "nothing here")
    if found is None:
        return None
    only(found, set(SCORER_FIELDS))
    return Scorer.read(found, kind.num_features)
