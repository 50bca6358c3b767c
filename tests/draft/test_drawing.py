"""Chains as they grow, and what their rounds came to."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import DraftAsk, Verdict
from offramp.draft.drawing import DraftChain, Drawn
from offramp.draft.plans import Judged

ASK = DraftAsk(("r", 0), 1, np.array([1, 2], np.int32), 16, 16)


@pytest.mark.parametrize(
    ("count", "refused", "num_stood", "follows", "rounds"),
    [
        (3, False, 1, True, (1, 2)),  # the second token fell
        (3, False, 3, True, (3, 3)),
        (2, True, 2, True, (2, 3)),  # the third round brought nothing
        (2, True, 1, True, (1, 2)),  # and nobody came so far
        (0, True, 0, True, (0, 1)),
        (1, False, 1, True, (1, 1)),  # a leaf beside the only token
        (2, False, 1, False, (1, 1)),  # the text ended
    ],
)
def test_a_round_that_brings_nothing_counts_as_one_whose_token_fell(
    count: int, refused: bool, num_stood: int, follows: bool, rounds: tuple[int, int]
) -> None:
    chain = DraftChain(ASK)
    for token in range(count):
        chain.append(Drawn(token, 0.5), 0.5)
    chain.refused = refused
    told = tuple(range(num_stood + follows))
    verdict = Verdict(token_ids=told, accepted=told[:num_stood], rows=told)
    assert chain.judged(num_stood, verdict) == Judged(*rounds, brought=num_stood)


def test_what_stood_but_was_cut_from_the_verified_draft_brought_nothing() -> None:
    """The target said it by itself, behind the accepted ones."""
    chain = DraftChain(ASK)
    for token in (7, 8, 9):
        chain.append(Drawn(token, 0.5), 0.5)
    verdict = Verdict(token_ids=(7, 8), accepted=(0,), rows=(0, 1))
    assert chain.judged(2, verdict) == Judged(stood=2, tested=2, brought=1)


def test_a_token_ends_a_refusal() -> None:
    chain = DraftChain(ASK, refused=True)
    chain.append(Drawn(7, 0.5), 0.5)
    assert not chain.refused
