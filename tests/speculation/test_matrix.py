"""Whatever drafts, however long, for whomever: ids, logprobs and finish reasons are those of plain decoding."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from offramp.testing.matrix import pairwise
from tests.speculation.cases import AXES, SAMPLING, Case, Ran, check, run_case

PAIRS = [Case(**values) for values in pairwise(AXES)]  # type: ignore[arg-type]
SEED = 3


@cache
def ran(case: Case) -> Ran:
    return run_case(case, SEED)


@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_drafts_change_nothing(case: Case) -> None:
    mine = ran(case)
    check(mine)
    assert bool(mine.statistics.num_cached_tokens) == case.cache
    if not case.drafts:
        assert mine.statistics.num_drafts == 0


def test_the_matrix_drafts_accepts_and_rejects() -> None:
    """Under every drafter, length control, format and kind of sampling; else equality would prove nothing."""
    accepted: Counter[object] = Counter()
    rejected: Counter[object] = Counter()
    for case in PAIRS:
        if case.drafts:
            statistics = ran(case).statistics
            for axis in AXES:
                accepted[axis, getattr(case, axis)] += statistics.num_accepted_tokens
                rejected[axis, getattr(case, axis)] += statistics.num_draft_tokens - statistics.num_accepted_tokens
    for axis, values in AXES.items():
        for value in values:
            if value != "off":
                assert accepted[axis, value] > 50, (axis, value)
                assert rejected[axis, value] > 50, (axis, value)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", AXES["drafter"])
def test_the_whole_grid(drafter: str) -> None:
    """All combinations; the kinds of sampling go side by side through one engine."""
    names = [axis for axis in AXES if axis not in ("drafter", "sampling")]
    for values in product(*(AXES[name] for name in names)):
        case = Case(drafter=drafter, sampling="mixed", **dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
        check(run_case(case, SEED, SAMPLING))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_hundreds_of_prompts(seed: int) -> None:
    """Other prompts for each seed, and for each a new draw of everything else."""
    rng = random.Random(seed)
    for drafter in AXES["drafter"]:
        drawn = {name: rng.choice(values) for name, values in AXES.items()}
        case = replace(Case(**drawn), drafter=drafter)  # type: ignore[arg-type]
        check(run_case(case, seed, rng.choices(list(SAMPLING), k=8)))
