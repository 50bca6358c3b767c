"""What a cascade's thresholds were calibrated on, and the file that keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from offramp.collaborate.cascade.scores import SCORES
from offramp.collaborate.threshold import ThresholdCalibration
from offramp.collaborate.threshold_fields import certified_fields, read_certified
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, ResourceError
from offramp.exits.certificate import SamplingSettings
from offramp.model.metadata import Fields, read_json
from offramp.model.pack_header import check_header, choice, model_hash
from offramp.whole_file import whole_file

FORMAT, VERSION = "offramp-cascade", 1
FIELDS = ("model", "score", "sampling", "max_tokens", "sample", "certified")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CascadeCalibration:
    """Holds for this little model and score, for answers drawn so, of at most so many tokens."""

    model: str  # hash of the little model's source tensors
    score: str
    sampling: SamplingSettings
    max_tokens: int | None  # None: up to the context's end
    thresholds: ThresholdCalibration

    def check_fits(self, found: str) -> None:
        """Raise InvalidRequestError if the little model is another one."""
        if self.model != found:
            raise InvalidRequestError(
                f"the calibration belongs to a little model with the tensor hash {self.model}, "
                f"the model loaded has {found}",
                hint="calibrate the cascade again, with this model",
                param="calibration",
            )

    def why_not(self, params: SamplingParams) -> str | None:
        """Why a certificate does not cover a request, naming the field; None: it does."""
        asked, measured = asdict(SamplingSettings.of(params)), asdict(self.sampling)
        for name, value in measured.items():
            if asked[name] != value:
                return f"{name}={asked[name]:g} differs from the calibration's {value:g}"
        if params.logit_bias:
            return "logit_bias was not part of the calibration"
        if self.max_tokens is not None and (params.max_tokens is None or params.max_tokens > self.max_tokens):
            wanted = "the rest of the context" if params.max_tokens is None else params.max_tokens
            return f"max_tokens={wanted} is above the calibration's {self.max_tokens}"
        return None


def write_cascade(path: Path, calibration: CascadeCalibration) -> None:
    """Keep it, whole or not at all. Raises ResourceError."""
    thresholds = calibration.thresholds
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": calibration.model,
        "score": calibration.score,
        "sampling": asdict(calibration.sampling),
        "max_tokens": calibration.max_tokens,
        "sample": thresholds.scores.tolist(),
        "certified": certified_fields(thresholds.certified),
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
    return CascadeCalibration(
        model=model_hash(content),
        score=choice(content, "score", {name: name for name in SCORES}),
        sampling=SamplingSettings.read(sampling),
        max_tokens=content.integer("max_tokens") if content.has("max_tokens") else None,
        thresholds=ThresholdCalibration(scores=sample, certified=read_certified(content)),
    )
