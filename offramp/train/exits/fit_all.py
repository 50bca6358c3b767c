"""Heads and predictors for every exit point, one after another, each in its share of the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.core import Ids
from offramp.exits.pack import ExitHead
from offramp.model.heads import HeadWeights
from offramp.model.quantize import dequantize
from offramp.model.tensors import WeightSource
from offramp.train.exits.answers import PartName
from offramp.train.exits.capture import Captured
from offramp.train.exits.fit import Part, fit_head
from offramp.train.exits.head import head_of, new_head
from offramp.train.exits.predictor import fit_predictor
from offramp.train.exits.recipe import Recipe
from offramp.train.exits.targets import Targets, make_targets
from offramp.train.exits.training import Training
from offramp.train.exits.validation import figures, judge_rows
from offramp.train.precision import matrix_dtype
from offramp.train.source import open_source


def fit_all(
    training: Training[Recipe], captured: Captured, parts: Mapping[int, PartName], vocab_ids: Ids
) -> tuple[dict[int, ExitHead], dict[str, Any]]:
    """What the pack holds by exit point, and what each is worth on held-out prompts."""
    recipe, loaded = training.recipe, training.loaded
    targets = make_targets(captured, vocab_ids)
    names = np.array([parts[number] for number in captured.numbers.tolist()])
    source = open_source(loaded.name).weights(loaded.weights)
    matrix = lm_head(source, vocab_ids)
    final_norm = torch.from_numpy(source.vector("final_norm"))
    exits: dict[int, ExitHead] = {}
    measured: dict[str, Any] = {}
    for index, layer in enumerate(recipe.layers):
        some = {name: _part(captured, targets, layer, names == name) for name in ("heads", "predictors", "validation")}
        head = fit_head(
            new_head(final_norm, recipe.rank, loaded.config.norm_eps, recipe.seed),
            matrix.to(matrix_dtype()),
            some["heads"],
            some["validation"],
            recipe,
            training.work.path / f"head-{layer}.pt",
            progress=_share_of_rest(training, len(recipe.layers) - index),
            say=partial(_tell_epoch, training, layer),
        )
        exits[layer], measured[str(layer)] = _kept(training, head.weights(vocab_ids), matrix, some)
        training.tell(f"exit after {layer} layers: {_summary(measured[str(layer)])}", always=True)
    return exits, measured


def lm_head(source: WeightSource, vocab_ids: Ids) -> Tensor:
    """The rows of the model's LM head for these ids, with the values that its stored form stands for."""
    matrix = source.matrix("embedding" if source.config.tie_embeddings else "lm_head")
    return torch.from_numpy(dequantize(matrix)[vocab_ids])


def _part(captured: Captured, targets: Targets, layer: int, chosen: NDArray[np.bool_]) -> Part:
    tokens = np.flatnonzero(chosen)
    return Part(captured.hidden[layer][tokens], targets.take(tokens))


def _kept(
    training: Training[Recipe], weights: HeadWeights, matrix: Tensor, some: Mapping[str, Part]
) -> tuple[ExitHead, dict[str, Any]]:
    """The head as it is stored, its predictor, and figures of both."""
    recipe, head = training.recipe, head_of(weights, training.loaded.config.norm_eps)
    agreed, sure = judge_rows(head, matrix, some["validation"])
    predictor = None
    if recipe.predictors is not None:
        seen, _ = judge_rows(head, matrix, some["predictors"])
        predictor = fit_predictor(
            recipe.predictors,
            recipe.width,
            some["predictors"].hidden,
            seen,
            some["validation"].hidden,
            agreed,
            recipe.seed,
        )
    return ExitHead(weights, predictor), figures(agreed, sure, predictor, some["validation"].hidden)


def _share_of_rest(training: Training[Recipe], num_left: int) -> Callable[[], float]:
    """Progress through this exit's part of the time that is left, which the exits still to come share."""
    start = training.clock.seconds
    allowed = max(1.0, (60 * training.recipe.minutes - start) / num_left)
    return lambda: (training.clock.seconds - start) / allowed


def _tell_epoch(training: Training[Recipe], layer: int, line: str) -> None:
    training.tell(f"exit after {layer} layers, {line}")


def _summary(measured: Mapping[str, Any]) -> str:
    at = measured["top_probability"]["0.9"]
    return f"agreement {measured['agreement']}; at probability 0.9 {at['leave']} leave, of which {at['agree']} agree"
