"""A frozen policy as data: what a calibration measures, what its file keeps, and what an engine makes of it.

Thresholds never change, so a decision depends on the row alone. `calibrate` runs it with the same `policy` as the
engine does later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from offramp.exits.measures import MEASURES, measure_of
from offramp.exits.policy import Fill
from offramp.exits.predictors import Predictor
from offramp.exits.similarity import Similarity
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.exits.thresholds import NEVER, TEMPERATURE, Decaying, PerExit, Threshold
from offramp.model.executor import HeadId
from offramp.model.metadata import Fields

PREDICTORS = ("none", "pack", "similarity")
FILLS: Mapping[str, Fill] = {"deferred": "deferred", "propagate": "propagate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPolicy:
    """Exit points with their thresholds, by one measure."""

    layers: tuple[int, ...]
    thresholds: tuple[float, ...]  # [layers]
    measure: str
    predictor: str = "none"  # the pack's, or hidden-state similarity
    predictor_thresholds: tuple[float, ...] = ()  # [layers]; empty without a predictor
    horizon: int | None = None  # most output tokens, over which thresholds fall as CALM's; None: they don't
    temperature: float = TEMPERATURE  # how fast they fall
    fill: Fill = "deferred"

    def __post_init__(self) -> None:
        assert self.layers, "exit points"
        assert all(low < high for low, high in pairwise(self.layers)), self.layers
        assert len(self.thresholds) == len(self.layers), self.thresholds
        assert self.predictor in PREDICTORS, self.predictor
        assert len(self.predictor_thresholds) == (0 if self.predictor == "none" else len(self.layers))

    def policy(self, heads: Mapping[int, HeadId], predictors: Mapping[int, Predictor] | None = None) -> ThresholdPolicy:
        """With an executor's heads, by layer, and the pack's predictors if this policy uses them."""
        chosen: Mapping[int, Predictor] | None = None
        if self.predictor == "similarity":
            chosen = dict.fromkeys(self.layers, Similarity())
        elif self.predictor == "pack":
            assert predictors, "the policy uses the pack's predictors"
            chosen = predictors
        return ThresholdPolicy(
            layers=self.layers,
            heads=heads,
            measure=measure_of(self.measure),
            threshold=self._threshold(),
            predictors=chosen,
            predictor_threshold=self._per_exit(self.predictor_thresholds) if chosen else None,
            fill=self.fill,
        )

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal policy."""
        return {
            "layers": list(self.layers),
            "thresholds": list(self.thresholds),
            "measure": self.measure,
            "predictor": self.predictor,
            "predictor_thresholds": list(self.predictor_thresholds),
            "horizon": self.horizon,
            "temperature": self.temperature,
            "fill": self.fill,
        }

    @staticmethod
    def read(fields: Fields) -> FrozenPolicy:
        """From JSON. Raises CorruptModelError naming the field."""
        layers = _layers(fields)
        predictor = choice(fields, "predictor", PREDICTORS)
        return FrozenPolicy(
            layers=layers,
            thresholds=_thresholds(fields, "thresholds", len(layers)),
            measure=choice(fields, "measure", MEASURES),
            predictor=predictor,
            predictor_thresholds=_thresholds(fields, "predictor_thresholds", 0 if predictor == "none" else len(layers)),
            horizon=fields.integer("horizon") if fields.has("horizon") else None,
            temperature=fields.number("temperature", low=0.0, high=1e6),
            fill=FILLS[choice(fields, "fill", FILLS)],
        )

    def _threshold(self) -> Threshold:
        thresholds = self._per_exit(self.thresholds)
        return thresholds if self.horizon is None else Decaying(thresholds, self.horizon, self.temperature)

    def _per_exit(self, thresholds: tuple[float, ...]) -> PerExit:
        return PerExit(dict(zip(self.layers, thresholds, strict=True)))


def choice(fields: Fields, name: str, known: Collection[str]) -> str:
    """A text that is one of some names."""
    value = fields.text(name)
    if value not in known:
        raise fields.error(name, f"one of {', '.join(known)}")
    return value


def _layers(fields: Fields) -> tuple[int, ...]:
    numbers = fields.numbers("layers")
    rising = all(low < high for low, high in pairwise((0.0, *numbers)))
    if not numbers or not rising or any(number != int(number) for number in numbers):
        raise fields.error("layers", "whole numbers from 1, rising")
    return tuple(int(number) for number in numbers)


def _thresholds(fields: Fields, name: str, count: int) -> tuple[float, ...]:
    values = fields.numbers(name)
    if len(values) != count or not all(0.0 <= value <= NEVER for value in values):
        raise fields.error(name, f"{count} thresholds in [0, {NEVER:g}], one for each exit point that needs one")
    return values
