"""IdBuffer, TokenTree and Sequence: the nouns' few rules."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import IdBuffer, Request, SamplingParams, Sequence, TokenTree

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
