"""Which kind of router with which settings: by cross-validation on the training prompts alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.curve import Estimate, curve_of, estimate_apgr
from offramp.collaborate.router.kind import Embeddings, Examples, Router, Settings
from offramp.collaborate.router.outcomes import check_learnable
from offramp.collaborate.threshold import Scores
from offramp.errors import InvalidRequestError
from offramp.params import check_choice

FOLDS = 5
LEAST_PROMPTS = 40
"""Fewer can't be cut into folds that say anything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """A way to make a router, and what it came to in cross-validation."""

    kind: str
    depth: int
    settings: Settings
    unseen: Scores  # of the training prompts, each by a router that was fitted without its fold
    apgr: Estimate  # of these

    def fit(self, by_depth: Mapping[int, Examples], seed: int) -> Router:
        """Of all these prompts."""
        return ROUTERS[self.kind].fit(by_depth[self.depth], self.settings, seed)


def choices(
    by_depth: Mapping[int, Examples],
    kinds: Collection[str],
    *,
    seed: int = 0,
    tell: Callable[[str], object] = lambda line: None,
) -> list[Choice]:
    """For each kind the best depth and settings, the best kind first. Raises InvalidRequestError for useless data.

    All depths hold the same prompts in the same order.
    """
    some = next(iter(by_depth.values()))
    gains = some.outcomes.gains(some.little, some.big)
    known = np.flatnonzero(~np.isnan(gains))
    if len(known) < LEAST_PROMPTS:
        raise InvalidRequestError(
            f"{len(known)} training prompts with outcomes of both models",
            hint=f"a router learns from {LEAST_PROMPTS} at least, and from hundreds if it is to learn anything",
            param="data",
        )
    check_learnable(gains[known])
    folds = fold_of(len(some), seed)
    found = []
    for kind in kinds:
        check_choice("kind", kind, ROUTERS)
        best = max(
            _tries(kind, by_depth, folds, seed), key=lambda each: curve_of(each.scores[known], gains[known]).apgr
        )
        apgr = estimate_apgr(best.scores[known], gains[known], seed=seed)
        tell(f"{kind}: APGR {apgr.value:.3f} on unseen folds, at depth {best.depth}")
        found.append(Choice(kind=kind, depth=best.depth, settings=best.settings, unseen=best.scores, apgr=apgr))
    return sorted(found, key=lambda each: each.apgr.value, reverse=True)


def fold_of(count: int, seed: int) -> NDArray[np.int64]:
    """[prompts]: which fold each prompt is held out in."""
    folds: NDArray[np.int64] = np.random.Generator(np.random.Philox(seed)).permutation(np.arange(count) % FOLDS)
    return folds


def unseen_scores(kind: str, settings: Settings, examples: Examples, folds: NDArray[np.int64], seed: int) -> Scores:
    """[prompts]: each scored by a router that was fitted without its fold."""
    scores = np.zeros(len(examples))
    for fold in range(FOLDS):
        router = ROUTERS[kind].fit(examples.take(np.flatnonzero(folds != fold)), settings, seed)
        held: Embeddings = examples.embeddings[folds == fold]
        scores[folds == fold] = router.scores(held)
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class _Try:
    depth: int
    settings: Settings
    scores: Scores


def _tries(kind: str, by_depth: Mapping[int, Examples], folds: NDArray[np.int64], seed: int) -> Iterator[_Try]:
    """Every depth with all settings."""
    for settings in ROUTERS[kind].grid:
        for depth, examples in by_depth.items():
            yield _Try(depth, settings, unseen_scores(kind, settings, examples, folds, seed))
