"""The policy of mode `unchecked`: raw settings over a loaded pack, without any promise."""

from __future__ import annotations

from collections.abc import Callable

from offramp.errors import InvalidRequestError
from offramp.exits.beta import BetaMixture
from offramp.exits.controllers import HoldDepth, HoldQueue, HoldRate
from offramp.exits.frozen import FILLS, FrozenPolicy
from offramp.exits.measures import measure_of
from offramp.exits.policy import Fill
from offramp.exits.threshold_policy import ThresholdPolicy
from offramp.exits.thresholds import Fixed, Threshold
from offramp.llm.exit_settings import DEFAULT_MEASURE, Adaptive, ExitSettings, Levels
from offramp.llm.exits import LoadedExits
from offramp.params import refused


def unchecked_policy(settings: ExitSettings, exits: LoadedExits, waiting: Callable[[], int]) -> ThresholdPolicy:
    """A fresh policy; `waiting` tells how many requests wait. Raises InvalidRequestError for what the pack lacks."""
    rule, kind = settings.rule, "none" if settings.gate is None else settings.gate[0]
    assert rule is not None, "mode unchecked needs a threshold"
    if kind == "pack" and not exits.pack.predictors:
        hint = "use similarity:0.95, or leave exit_predictor out"
        raise InvalidRequestError(
            f"exit_predictor={settings.predictor!r}: the pack {exits.name} has no predictors",
            hint=hint,
            param="exit_predictor",
        )
    if isinstance(rule, Adaptive):
        return _adaptive(settings, exits, _threshold(rule, exits, waiting))
    return exits.policy(_frozen(settings, exits, rule))


def _frozen(settings: ExitSettings, exits: LoadedExits, levels: Levels) -> FrozenPolicy:
    """Only exit points with a threshold are asked."""
    known = exits.pack.config.layers
    named = {layer: level for layer, level in levels.items() if layer is not None}
    foreign = sorted(named.keys() - set(known))
    if foreign:
        raise refused("exit_threshold", f"layer {foreign[0]}", f"layers of the pack: {', '.join(map(str, known))}")
    layers = tuple(sorted(named)) or known
    thresholds = tuple(named.get(layer, levels.get(None, 0.0)) for layer in layers)
    name, score = settings.gate or ("none", 0.0)
    return FrozenPolicy(
        layers=layers,
        thresholds=thresholds,
        measure=settings.measure or DEFAULT_MEASURE,
        predictor=name,
        predictor_thresholds=() if settings.gate is None else (score,) * len(layers),
        horizon=settings.decay,
        fill=_fill(settings),
    )


def _adaptive(settings: ExitSettings, exits: LoadedExits, threshold: Threshold) -> ThresholdPolicy:
    return ThresholdPolicy(
        layers=exits.pack.config.layers,
        heads=exits.heads,
        measure=measure_of(settings.measure or DEFAULT_MEASURE),
        threshold=threshold,
        predictors=None if settings.gate is None else exits.predictors(settings.gate[0]),
        predictor_threshold=None if settings.gate is None else Fixed(settings.gate[1]),
        fill=_fill(settings),
    )


def _threshold(rule: Adaptive, exits: LoadedExits, waiting: Callable[[], int]) -> Threshold:
    config = exits.pack.config
    match rule.kind:
        case "beta":
            return BetaMixture(rule.target)
        case "rate":
            return HoldRate(rule.target, config.layers)
        case "queue":
            return HoldQueue(rule.target, config.layers, waiting)
        case "depth":
            if not config.layers[0] <= rule.target <= config.num_layers:
                bounds = f"from {config.layers[0]}, the first exit point, to {config.num_layers}"
                raise refused("exit_threshold", f"depth:{rule.target:g}", f"a depth {bounds}")
            return HoldDepth(rule.target, config.layers, config.num_layers)


def _fill(settings: ExitSettings) -> Fill:
    return FILLS[settings.fill or "deferred"]
