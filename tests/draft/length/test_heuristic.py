"""Two more after success, one less after failure."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import DraftAsk, StepLoad, TokenTree, Verdict
from offramp.draft.length.heuristic import HeuristicLength
from offramp.errors import InvalidRequestError

LOAD = StepLoad(1, 1, 10, 0.0)
CHAIN = TokenTree.chain(range(1, 33))


def ask(name: str = "r", max_nodes: int = 40) -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array([0], np.int32), max_nodes, 40)


def told(*token_ids: int) -> Verdict:
    return Verdict(token_ids=token_ids, accepted=(), rows=(0,) * len(token_ids))


def allowed(lengths: HeuristicLength, name: str = "r") -> int:
    [wanted] = lengths.wants([ask(name)])
    [part] = lengths.choose([ask(name)], [CHAIN], LOAD)
    assert len(part) == wanted.max_nodes
    return len(part)


def test_lengths_follow_the_rule() -> None:
    lengths = HeuristicLength(start=2, cap=6)
    seen = [allowed(lengths)]
    for verdict in [told(1, 2, 3), told(*range(1, 6)), told(*range(1, 8)), told(9), told(1, 2, 9), *[told(9)] * 5]:
        lengths.observe(ask(), CHAIN, verdict)
        seen.append(allowed(lengths))
    assert seen == [2, 4, 6, 6, 5, 4, 3, 2, 1, 1, 1]


def test_a_shorter_proposal_that_stood_whole_counts_as_success() -> None:
    lengths = HeuristicLength(start=5)
    lengths.observe(ask(), TokenTree.chain([1, 2]), told(1, 2, 9))
    assert allowed(lengths) == 7


def test_no_proposal_changes_nothing() -> None:
    lengths = HeuristicLength(start=5)
    lengths.observe(ask(), TokenTree(), told(1))
    assert allowed(lengths) == 5


def test_a_tree_succeeds_when_a_path_stands_to_its_leaf() -> None:
    tree = TokenTree((1, 2, 3), (-1, -1, 1))
    for verdict, length in [(told(2, 3, 9), 7), (told(1, 9), 7), (told(2, 9), 4), (told(9), 4)]:
        lengths = HeuristicLength(start=5)
        lengths.observe(ask(), tree, verdict)
        assert allowed(lengths) == length


def test_sequences_keep_apart_and_are_forgotten() -> None:
    lengths = HeuristicLength(start=5)
    lengths.observe(ask("a"), CHAIN, told(9))
    assert (allowed(lengths, "a"), allowed(lengths, "b")) == (4, 5)
    lengths.forget(("a", 0))
    lengths.forget(("never seen", 0))
    assert allowed(lengths, "a") == 5


def test_bounds_are_only_lowered() -> None:
    [wanted] = HeuristicLength(start=5).wants([ask(max_nodes=3)])
    assert wanted.max_nodes == 3


@pytest.mark.parametrize(("start", "cap"), [(0, 5), (6, 5), (5, 65), (1.5, 5)])
def test_impossible_lengths_are_refused(start: int, cap: int) -> None:
    with pytest.raises(InvalidRequestError):
        HeuristicLength(start, cap)
