"""Every impossible value of every field is refused by name, in a line, whatever its type."""

from __future__ import annotations

import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest

from offramp import InvalidRequestError, SamplingParams
from offramp.params import shown

HUGE = 10**5000


class Odd:
    """Something whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError


WRONG: dict[str, list[Any]] = {
    "temperature": [-0.1, 1e7, math.nan, math.inf, "1", None, True, Fraction(1, 2), HUGE, [], Odd()],
    "top_k": [-2, 0.01, "1", None, True, [HUGE]],
    "top_p": [0, -1, 1.1, math.nan, "1", None],
    "min_p": [-0.1, 1.1, math.nan, None],
    "max_tokens": [0, -1, 1.5, "5", True],
    "min_tokens": [-1, 257, 1.0, None, HUGE],
    "stop": [5, "", [""], ["a", ""], [None], [5], b"ab", [b"ab"], {"a": 1}, iter(["a"]), True, ["a", HUGE]],
    "stop_token_ids": [5, "5", b"5", [-1], [True], [1.5], ["5"], {5: 1}, iter([5]), [None]],
    "ignore_eos": ["false", None, 1],
    "seed": [-1, 2**64, HUGE, -HUGE, 1.0, "1", True],
    "n": [0, 129, 1.5, None, HUGE],
    "logprobs": [-1, 129, True, "1"],
    "prompt_logprobs": [-1, 129, True, "1"],
    "repetition_penalty": [0, -1, 1e7, math.nan, None],
    "presence_penalty": [-2.1, 2.1, math.nan, "0", None],
    "frequency_penalty": [-2.1, 2.1, math.nan, "0", None],
    "logit_bias": [[(1, 2)], [], "5", 5, {"5": 1}, {-1: 1}, {True: 1}, {5: 101}, {5: math.nan}, {5: "1"}, {5: HUGE}],
    "structured_outputs": ["json", {"json": {}}, 5, True, []],
}


def test_every_field_has_its_cases() -> None:
    assert set(WRONG) == {field.name for field in fields(SamplingParams)}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_values_are_refused_by_name(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(InvalidRequestError, match="is impossible") as caught:
            SamplingParams(**{name: value})
        assert caught.value.param == name
        assert name in str(caught.value)
        assert name in caught.value.hint
        assert len(str(caught.value)) < 150
        assert "\n" not in str(caught.value)


def test_none_means_none() -> None:
    params = SamplingParams(stop=None, stop_token_ids=None, logit_bias=None)  # type: ignore[arg-type]
    assert params == SamplingParams()


def test_lists_become_tuples_and_one_string_a_list() -> None:
    params = SamplingParams(stop="ab", stop_token_ids=[1, 2])  # type: ignore[arg-type]
    assert (params.stop, params.stop_token_ids) == (("ab",), (1, 2))
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


def test_the_bias_is_a_copy() -> None:
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = math.nan
    assert params.logit_bias == {1: 2.0}


def test_bounds_belong_to_the_range() -> None:
    SamplingParams(temperature=1e6, top_k=-1, top_p=1, min_p=1, seed=2**64 - 1, n=128, logprobs=128)
    SamplingParams(temperature=0, repetition_penalty=1e6, presence_penalty=-2, frequency_penalty=2)
    SamplingParams(max_tokens=HUGE, logit_bias={5: 100, 6: -100}, top_k=HUGE)


def test_what_is_shown_is_short() -> None:
    assert shown(7) == "7"
    assert shown("text") == "'text'"
    assert shown(2**200) == "<an integer of 201 bits>"
    assert shown(-HUGE).startswith("<an integer of 16")
    assert len(shown("x" * 10000)) < 100
    assert shown(Odd()) == "<Odd>"
    assert shown([HUGE]) == "<list>"
