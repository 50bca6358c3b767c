"""What no executor could run is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offramp.errors import CorruptModelError
from offramp.model.heads import HeadWeights, check_head, columns_of
from offramp.model.tensors import F32Matrix, Q4Matrix, Q8Matrix
from offramp.testing.heads import random_head
from offramp.testing.toy import ToyFormat, convert, toy_config

CONFIG = toy_config()  # hidden size 64, vocabulary 260
GOOD = random_head(CONFIG, seed=0, rank=8, weights="q8", vocab_ids=np.array([3, 7, 259], np.int32), own_matrix=True)


def ids(*values: int) -> HeadWeights:
    return HeadWeights(vocab_ids=np.array(values, np.int32))


def zeros(rows: int, columns: int, weights: ToyFormat = "f32") -> F32Matrix | Q8Matrix | Q4Matrix:
    return convert(np.zeros((rows, columns), np.float32), weights)


def with_nan(rows: int, columns: int) -> F32Matrix:
    values = np.zeros((rows, columns), np.float32)
    values[-1, -1] = np.nan
    return F32Matrix(values)


def q8(rows: int, columns: int, *, scale: float = 1.0, code: int = 0) -> Q8Matrix:
    codes, scales = np.full((rows, columns), code, np.int8), np.full((rows, columns // 32), scale, np.float16)
    return Q8Matrix(codes, scales, columns)


def q4(rows: int, columns: int, *, minimum: float = 0.0, code: int = 0) -> Q4Matrix:
    codes, scales = np.full((rows, columns), code, np.uint8), np.ones((rows, columns // 32), np.float16)
    return Q4Matrix(codes, scales, np.full_like(scales, minimum), columns)


BAD: dict[str, tuple[HeadWeights, str]] = {
    "norm of another width": (HeadWeights(norm=np.ones(63, np.float32)), r"norm has shape \[63\].* \[64\]"),
    "norm of two dimensions": (HeadWeights(norm=np.ones((1, 64), np.float32)), r"norm has shape \[1, 64\]"),
    "NaN in norm": (HeadWeights(norm=np.full(64, np.nan, np.float32)), "norm holds NaN"),
    "infinity in input_norm": (
        replace(GOOD, input_norm=np.full(64, np.inf, np.float32)),
        "input_norm holds NaN or infinite",
    ),
    "input_norm of another width": (replace(GOOD, input_norm=np.ones(3, np.float32)), r"input_norm has shape \[3\]"),
    "no down": (replace(GOOD, down=None), "the adapter lacks down"),
    "only up": (replace(GOOD, down=None, input_norm=None), "lacks input_norm and down"),
    "only input_norm": (HeadWeights(input_norm=np.ones(64, np.float32)), "lacks down and up"),
    "down of another width": (replace(GOOD, down=zeros(8, 63)), r"down has shape \[8, 63\].* \[8, 64\]"),
    "up of another rank": (replace(GOOD, up=zeros(64, 9)), r"up has shape \[64, 9\].* \[64, 8\]"),
    "rank 0": (replace(GOOD, down=zeros(0, 64), up=zeros(64, 0)), "rank 0"),
    "NaN in down": (replace(GOOD, down=with_nan(8, 64)), "down holds NaN"),
    "NaN scale": (replace(GOOD, down=q8(8, 64, scale=np.nan)), "down holds NaN"),
    "infinite minimum": (replace(GOOD, down=q4(8, 64, minimum=np.inf)), "down holds NaN or infinite"),
    "code -128": (replace(GOOD, down=q8(8, 64, code=-128)), r"down uses codes outside \[-127, 127\]"),
    "code 16": (replace(GOOD, down=q4(8, 64, code=16)), r"down uses codes outside \[0, 15\]"),
    "scales of fewer blocks": (
        replace(GOOD, down=Q8Matrix(np.zeros((8, 64), np.int8), np.zeros((8, 1), np.float16), 64)),
        "down: its blocks",
    ),
    "codes of fewer columns": (
        replace(GOOD, down=Q8Matrix(np.zeros((8, 32), np.int8), np.zeros((8, 2), np.float16), 64)),
        "down: its blocks",
    ),
    "matrix of other tokens": (replace(GOOD, matrix=zeros(4, 64)), r"matrix has shape \[4, 64\].* \[3, 64\]"),
    "matrix of fewer tokens than all": (HeadWeights(matrix=zeros(259, 64)), r"matrix .* \[260, 64\]"),
    "NaN in matrix": (HeadWeights(matrix=with_nan(260, 64)), "matrix holds NaN"),
    "no token": (ids(), "at least one token|shape"),
    "ids of two dimensions": (HeadWeights(vocab_ids=np.array([[1]], np.int32)), r"vocab_ids has shape \[1, 1\]"),
    "id too large": (ids(3, 260), "holds 260, outside the vocabulary of 260"),
    "negative id": (ids(-1, 3), "holds -1"),
    "repeated id": (ids(3, 5, 5), "must ascend, but 5 follows 5 at 2"),
    "falling ids": (ids(3, 9, 5), "must ascend, but 5 follows 9 at 2"),
}


@pytest.mark.parametrize("what", BAD)
def test_heads_that_do_not_fit_are_refused_by_name(what: str) -> None:
    head, message = BAD[what]
    with pytest.raises(CorruptModelError, match=message) as caught:
        check_head(head, CONFIG)
    assert caught.value.hint


@pytest.mark.parametrize("weights", ["f32", "q8", "q4"])
def test_heads_that_fit_pass(weights: ToyFormat) -> None:
    odd = toy_config(hidden_size=37, vocab_size=77)
    for rank in (None, 1, 33):
        check_head(random_head(odd, seed=1, rank=rank, weights=weights, own_matrix=True), odd)
    check_head(GOOD, CONFIG)
    check_head(HeadWeights(), CONFIG)
    check_head(ids(0, 259), CONFIG)


def test_columns_go_by_token() -> None:
    known = np.array([2, 5, 9], np.int32)
    assert columns_of(known, np.array([9, 2, 9], np.int32)).tolist() == [2, 0, 2]
    assert columns_of(None, np.array([9, 2], np.int32)).tolist() == [9, 2]
    for stranger in (-1, 3, 10):
        with pytest.raises(AssertionError, match=str(stranger)):
            columns_of(known, np.array([2, stranger], np.int32))
