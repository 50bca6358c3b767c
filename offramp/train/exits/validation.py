"""What an exit is worth on held-out prompts: its agreement with full depth, by threshold, and its predictor's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.exits.predictors import LinearPredictor, MlpPredictor
from offramp.train.exits.fit import Part
from offramp.train.exits.head import TrainedHead

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def judge_rows(head: TrainedHead, matrix: Tensor, part: Part) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """For each token whether the head's argmax is full depth's, and the probability that the head gives it."""
    agreed, sure = [], []
    with torch.no_grad():
        for start in range(0, len(part.hidden), 1024):
            hidden = torch.from_numpy(part.hidden[start : start + 1024].astype(np.float32))
            best = head.logits(hidden, matrix).softmax(dim=1).max(dim=1)
            labels = torch.from_numpy(part.targets.labels[start : start + 1024])
            agreed.append((best.indices == labels).numpy())
            sure.append(best.values.numpy())
    return np.concatenate(agreed), np.concatenate(sure)


def figures(
    agreed: NDArray[np.bool_],
    sure: NDArray[np.float32],
    predictor: LinearPredictor | MlpPredictor | None,
    hidden: NDArray[np.float16],
) -> dict[str, Any]:
    """Shares of tokens: all that agree; by threshold those that would leave, and how many of them agree."""
    result: dict[str, Any] = {"tokens": len(agreed), "agreement": _share(agreed)}
    by_threshold = {}
    for threshold in THRESHOLDS:
        leaves = sure >= threshold
        by_threshold[str(threshold)] = {"leave": _share(leaves), "agree": _share(agreed[leaves])}
    result["top_probability"] = by_threshold
    if predictor is not None:
        passed = predictor.scores(hidden.astype(np.float32), None) >= 0.5
        result["predictor"] = {
            "passed": _share(passed),
            "agree_of_passed": _share(agreed[passed]),
            "passed_of_agreeing": _share(passed[agreed]),
        }
    return result


def _share(flags: NDArray[np.bool_]) -> float | None:
    """None of no tokens."""
    return round(float(flags.mean()), 4) if len(flags) else None
