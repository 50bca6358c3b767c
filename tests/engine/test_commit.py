"""Where a block of tokens ends a sequence (B24, B30, B32): every order of the causes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from offramp.core import Request, SamplingParams, Sequence
from offramp.engine.commit import commit_tokens

EOS, STOP_ID, TEXT_END = 90, 91, 92
BLOCK = [10, 11, 12, 13]


def sequence(*, max_context: int = 100, min_tokens: int = 0, **params: object) -> Sequence:
    def watcher(choice: int) -> Callable[[int], bool]:
        return lambda token: token == TEXT_END

    request = Request(
        request_id="r",
        prompt_token_ids=[1, 2, 3],
        params=SamplingParams(stop_token_ids=(STOP_ID,), stop=("x",), min_tokens=min_tokens, **params),  # type: ignore[arg-type]
        eos_token_ids=frozenset({EOS}),
        seed=0,
        text_stop=watcher,
    )
    return Sequence(request, 0, arrival=0, max_context=max_context)


@pytest.mark.parametrize(("place", "end", "max_tokens"), list(product(range(4), (EOS, STOP_ID, TEXT_END), range(1, 6))))
def test_the_earliest_position_wins_and_a_stop_wins_a_tie(place: int, end: int, max_tokens: int) -> None:
    block = [*BLOCK[:place], end, *BLOCK[place + 1 :]]
    target = sequence(max_tokens=max_tokens)
    done = commit_tokens(target, block)
    if place < max_tokens:
        assert (done.count, done.finish_reason, done.text_stopped) == (place + 1, "stop", end == TEXT_END)
    else:
        assert (done.count, done.finish_reason) == (max_tokens, "length")
    assert target.output_ids.tolist() == block[: done.count]


def test_stop_inside_and_beyond_the_cap_b24() -> None:
    run = [10, 11, TEXT_END, 20, 21, 22]
    assert commit_tokens(sequence(max_tokens=5), run).count == 3
    done = commit_tokens(sequence(max_tokens=5), [10, 11, 12, 13, 14, TEXT_END])
    assert (done.count, done.finish_reason) == (5, "length")


def test_the_context_ends_like_max_tokens() -> None:
    done = commit_tokens(sequence(max_context=5, max_tokens=None), BLOCK)
    assert (done.count, done.finish_reason) == (2, "length")


def test_an_open_block_goes_on() -> None:
    done = commit_tokens(sequence(max_tokens=9), BLOCK)
    assert (done.count, done.finish_reason) == (4, None)


def test_ignore_eos_leaves_stop_ids_alone() -> None:
    done = commit_tokens(sequence(ignore_eos=True, max_tokens=9), [EOS, 10, STOP_ID])
    assert (done.count, done.finish_reason) == (3, "stop")


def test_a_stop_string_before_min_tokens_does_not_count() -> None:
    done = commit_tokens(sequence(min_tokens=2, max_tokens=9), [TEXT_END, TEXT_END, 10])
    assert (done.count, done.text_stopped) == (2, True)
