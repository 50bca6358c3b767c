"""Prompts and parameters in all the forms a caller may use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offramp import InvalidRequestError, SamplingParams
from offramp.llm.prompts import as_param, as_params, as_prompts, encode_prompt
from offramp.testing.models import chat_tokenizer

TOKENIZER = chat_tokenizer()


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("text", ["text"]),
        ("", [""]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [2]], ["a", [2]]),
        ([], []),
        ([[]], [[]]),
        ([np.int64(3)], [[3]]),
    ],
)
def test_one_or_many(prompts: Any, expected: list[Any]) -> None:
    assert as_prompts(prompts) == expected


NO_PROMPTS = [5, None, [1.5], [True], [1, "a"], [[1, "a"]], ["a", 1], {"a": 1}, [None], iter([1])]
BYTES = [b"abc", bytearray(b"abc"), memoryview(b"abc"), b""]


@pytest.mark.parametrize("prompts", [*NO_PROMPTS, *BYTES, *([item] for item in BYTES), ["text", b"abc"]])
def test_anything_else_is_refused(prompts: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        as_prompts(prompts)
    assert caught.value.param == "prompt"


def test_params_for_all_or_for_each() -> None:
    one, two = SamplingParams(n=1), SamplingParams(n=2)
    assert as_params(None, 2) == [SamplingParams()] * 2
    assert as_params(two, 2) == [two, two]
    assert as_params([one, two], 2) == [one, two]
    with pytest.raises(InvalidRequestError, match="2 sets of sampling parameters for 3 prompts"):
        as_params([one, two], 3)


@pytest.mark.parametrize("params", [5, {}, {"n": 2}, [5, 5], [None, 5], "greedy", b"ab", iter([SamplingParams()])])
def test_params_of_another_type_are_refused(params: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        as_params(params, 2)
    assert caught.value.param == "params"
    with pytest.raises(InvalidRequestError):
        as_param(params)


def test_special_tokens_are_parsed_in_raw_prompts() -> None:
    assert encode_prompt("<|im_start|>", TOKENIZER, None) == [1]


@pytest.mark.parametrize("prompt", BYTES)
def test_bytes_are_no_list_of_ids(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"can't be {type(prompt).__name__}"):
        encode_prompt(prompt, TOKENIZER, 1)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_starts_from_bos(prompt: Any) -> None:
    assert encode_prompt(prompt, TOKENIZER, 1) == [1]
    with pytest.raises(InvalidRequestError, match="empty and the model has no BOS"):
        encode_prompt(prompt, TOKENIZER, None)
