"""The exit policy that all settings share: a row leaves when its score reaches a threshold.

What: at each exit point a predictor, where there is one, says which rows are worth a head; of those the head's logits
give a score by a measure; a row leaves when it reaches the threshold.
When it helps: as far as heads agree with full depth where they are sure; calibration measures it.
Cost: the predictor for all rows, the head for those that pass; no head at all where the threshold is out of reach.
Exactness: lossy. With frozen thresholds a decision depends on the row alone, never on the batch; adaptive ones are
marked so.
Source: CALM (arXiv 2207.07061), FREE (arXiv 2310.05424), EE-LLM (arXiv 2312.04916).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.exits.measures import Measure, Scores
from offramp.exits.policy import ExitRows, Fill
from offramp.exits.predictors import Predictor
from offramp.exits.thresholds import Threshold, values
from offramp.model.executor import HeadId


class ThresholdPolicy:
    """Implements `ExitPolicy`. `predictors` has one for each exit point, or none at all."""

    def __init__(
        self,
        *,
        layers: tuple[int, ...],
        heads: Mapping[int, HeadId],
        measure: Measure,
        threshold: Threshold,
        predictors: Mapping[int, Predictor] | None = None,
        predictor_threshold: Threshold | None = None,
        fill: Fill = "deferred",
    ) -> None:
        assert all(low < high for low, high in pairwise(layers)), layers
        assert set(layers) <= set(heads), "a head for each exit point"
        assert not predictors or set(layers) <= set(predictors), "a predictor for each exit point, or for none"
        assert bool(predictors) == (predictor_threshold is not None), "predictors and their threshold come together"
        assert predictor_threshold is None or not predictor_threshold.adaptive, "only the head's threshold adapts"
        self._layers = layers
        self._heads = {layer: heads[layer] for layer in layers}
        self._measure = measure
        self._threshold = threshold
        self._predictors = {layer: predictors[layer] for layer in layers} if predictors else {}
        self._predictor_threshold = predictor_threshold
        self._fill = fill
        self._scores: dict[SequenceKey, dict[tuple[int, int], float]] = {}  # by (layer, output), of tokens that left

    @property
    def layers(self) -> tuple[int, ...]:
        return self._layers

    @property
    def fill(self) -> Fill:
        return self._fill

    @property
    def adaptive(self) -> bool:
        """Its thresholds learn while it runs, so tokens depend on what ran before: for mode `unchecked` only."""
        return self._threshold.adaptive

    @property
    def wants_previous(self) -> bool:
        return any(predictor.wants_previous for predictor in self._predictors.values())

    @property
    def wants_labels(self) -> bool:
        return self._threshold.wants_labels

    def head(self, layer: int) -> HeadId:
        return self._heads[layer]

    def decide(self, rows: ExitRows) -> NDArray[np.bool_]:
        thresholds = values(self._threshold, rows.layer, rows.outputs)
        hopeful = [row for row, threshold in enumerate(thresholds) if threshold <= 1.0]
        if self._predictors and hopeful:
            hopeful = self._passed(rows, hopeful)
        scores = [math.nan] * len(thresholds)
        if hopeful:
            for row, score in zip(hopeful, self._measure(rows.summary(hopeful)).tolist(), strict=True):
                scores[row] = score
        left = np.array([score >= threshold for score, threshold in zip(scores, thresholds, strict=True)], np.bool_)
        if self.adaptive:
            self._learn(rows, np.array(scores, dtype=np.float32), left)
        return left

    def observe(self, layer: int, keys: Sequence[SequenceKey], outputs: Ids, agreed: NDArray[np.bool_]) -> None:
        known: list[tuple[float, bool]] = []
        for key, output, same in zip(keys, outputs.tolist(), agreed.tolist(), strict=True):
            score = self._scores.get(key, {}).pop((layer, output), None)
            if score is not None:
                known.append((score, same))
        if known:
            scores, same_as_full = zip(*known, strict=True)
            self._threshold.observe(layer, np.array(scores, dtype=np.float32), np.array(same_as_full, dtype=np.bool_))

    def forget(self, key: SequenceKey) -> None:
        self._scores.pop(key, None)

    def _passed(self, rows: ExitRows, hopeful: list[int]) -> list[int]:
        """Which of these are worth asking the head."""
        predictor = self._predictors[rows.layer]
        assert self._predictor_threshold is not None
        previous = rows.previous.numpy() if predictor.wants_previous and rows.previous is not None else None
        scores = predictor.scores(rows.hidden.numpy(), previous).tolist()
        thresholds = values(self._predictor_threshold, rows.layer, rows.outputs)
        return [row for row in hopeful if scores[row] >= thresholds[row]]

    def _learn(self, rows: ExitRows, scores: Scores, left: NDArray[np.bool_]) -> None:
        """Tell the threshold, and keep the scores of what leaves until its labels come."""
        if self.wants_labels:
            for row in np.flatnonzero(left).tolist():
                place = rows.layer, int(rows.outputs[row])
                self._scores.setdefault(rows.keys[row], {})[place] = float(scores[row])
        self._threshold.decided(rows.layer, scores, left)
