"""Ids, Rows, TokenTree and Sequence: the nouns' few rules."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import IdBuffer, Request, Rows, SamplingParams, Sequence, TokenTree, num_shared_ids

TREE = TokenTree((10, 11, 12, 13, 14), (-1, 0, -1, 1, 2))


def test_paths_lead_from_the_root_to_the_node() -> None:
    assert TREE.paths() == [(0,), (0, 1), (2,), (0, 1, 3), (2, 4)]
    assert not TREE.is_chain
    assert TokenTree.chain([5, 6]).paths() == [(0,), (0, 1)]
    assert TokenTree.chain([5, 6]).is_chain
    assert TokenTree().is_chain


def test_clamp_cuts_depth_and_then_nodes() -> None:
    assert TREE.clamp(max_nodes=9, max_depth=1) == TokenTree((10, 12), (-1, -1))
    assert TREE.clamp(max_nodes=4, max_depth=2) == TokenTree((10, 11, 12, 14), (-1, 0, -1, 2))
    assert TREE.clamp(max_nodes=3, max_depth=2) == TokenTree((10, 11, 12), (-1, 0, -1))
    assert TREE.clamp(max_nodes=0, max_depth=2) == TokenTree()
    assert TREE.clamp(max_nodes=5, max_depth=-1) == TokenTree()
    assert TREE.clamp(max_nodes=5, max_depth=5) is TREE


def test_unknown_ids_go_with_everything_behind_them() -> None:
    assert TREE.without_ids_from(100) is TREE
    assert TokenTree((10, 300, 12, 13), (-1, 0, 0, 1)).without_ids_from(260) == TokenTree((10, 12), (-1, 0))
    assert TokenTree.chain([-1, 2]).without_ids_from(260) == TokenTree()


def test_parents_come_first() -> None:
    with pytest.raises(AssertionError):
        TokenTree((1, 2), (1, -1))


def test_texts_begin_alike_up_to_the_first_difference() -> None:
    ones = [np.array(tokens, np.int32) for tokens in ([], [1, 2, 3], [1, 2], [1, 9, 3])]
    assert [num_shared_ids(ones[1], other) for other in ones] == [0, 3, 2, 1]


def test_a_chain_has_the_pages_that_it_reaches() -> None:
    tokens, pages = np.arange(100, 170, dtype=np.int32), np.array([7, 4, 9], np.int32)
    rows = Rows.chain(tokens, 30, 34, pages)
    assert rows.tokens.tolist() == [130, 131, 132, 133]
    assert rows.positions.tolist() == rows.slots.tolist() == rows.prefix_lens.tolist() == [30, 31, 32, 33]
    assert (rows.sequence.tolist(), rows.page_ids.tolist(), rows.page_starts.tolist()) == ([0] * 4, [7, 4], [0, 2])
    assert Rows.chain(tokens, 0, 32, pages).page_ids.tolist() == [7]


def test_id_buffer_grows_and_shrinks() -> None:
    buffer = IdBuffer(range(3))
    before = buffer.view
    for value in range(3, 200):
        buffer.append(value)
    buffer.extend([7, 8])
    assert before.tolist() == [0, 1, 2]
    assert buffer.view.tolist() == [*range(200), 7, 8]
    assert buffer.view.dtype == np.int32
    assert (buffer.pop(), buffer.pop(), len(buffer)) == (8, 7, 200)


def test_a_sequence_ends_at_the_smaller_of_its_two_limits() -> None:
    def limit(max_tokens: int | None, max_context: int) -> int:
        request = Request(
            request_id="r", prompt_token_ids=[1] * 5, params=SamplingParams(max_tokens=max_tokens), seed=0
        )
        return Sequence(request, 0, arrival=0, max_context=max_context).limit

    assert (limit(3, 100), limit(3, 6), limit(None, 100)) == (8, 6, 100)


def test_a_callers_prompt_is_copied() -> None:
    prompt = np.array([1, 2, 3], dtype=np.int32)
    sequence = Sequence(
        Request(request_id="r", prompt_token_ids=prompt, params=SamplingParams(), seed=0), 0, arrival=0, max_context=9
    )
    prompt[0] = 9
    assert sequence.prompt_ids.tolist() == [1, 2, 3]
