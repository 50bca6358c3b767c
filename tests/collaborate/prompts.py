"""Prompts as points, of which some are hard for the little model."""

from __future__ import annotations

import numpy as np

from offramp.collaborate.router.kind import Examples
from offramp.collaborate.router.outcomes import Outcomes

FEATURES = 12


def examples(count: int = 400, seed: int = 5, strength: float = 3.0) -> Examples:
    """The big model alone is right where the first two features say so, mostly; `strength` 0: nothing tells."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((count, FEATURES)).astype(np.float32)
    hard = rng.random(count) < 1 / (1 + np.exp(-strength * (points[:, 0] - points[:, 1])))
    quality = np.stack([np.where(hard, 0.0, 1.0), np.ones(count)], axis=1)
    quality[rng.random(count) < 0.1, 1] = 0.0  # it is wrong now and then
    return Examples(embeddings=points, outcomes=Outcomes(("little", "big"), quality), little="little", big="big")
