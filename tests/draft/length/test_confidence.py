"""Paths end with their first unsure node."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import DraftAsk, StepLoad, TokenTree
from offramp.draft.length.confidence import ConfidenceLength
from offramp.errors import InvalidRequestError

ASK = DraftAsk(("r", 0), 1, np.array([0], np.int32), 8, 8)


def part(tree: TokenTree, threshold: float = 0.4) -> TokenTree:
    lengths = ConfidenceLength(threshold)
    assert lengths.wants([ASK]) == [ASK]
    [kept] = lengths.choose([ASK], [tree], StepLoad(1, 1, 10, 0.0))
    return kept


def test_a_chain_ends_with_its_first_unsure_token() -> None:
    chain = TokenTree.chain([1, 2, 3, 4], [0.9, 0.4, 0.39, 0.9])
    assert part(chain) == TokenTree.chain([1, 2, 3], [0.9, 0.4, 0.39])
    assert part(chain, threshold=0.95) == TokenTree.chain([1], [0.9])
    assert part(chain, threshold=0.0) is chain


def test_each_path_of_a_tree_ends_on_its_own() -> None:
    tree = TokenTree((1, 2, 3, 4, 5), (-1, -1, 0, 1, 3), (0.9, 0.1, 0.8, 0.9, 0.9))
    assert part(tree) == TokenTree((1, 2, 3), (-1, -1, 0), (0.9, 0.1, 0.8))


def test_a_proposal_without_scores_stays_whole() -> None:
    chain = TokenTree.chain([1, 2, 3])
    assert part(chain) is chain


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "0.4"])
def test_impossible_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(InvalidRequestError, match="threshold"):
        ConfidenceLength(threshold)
