"""Damaged and lying exit packs are refused by field or tensor, and nothing else than an OfframpError ever comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from offramp.errors import CorruptModelError, OfframpError
from offramp.exits.pack import bind, load_heads
from offramp.exits.pack_file import CONFIG_FILE, TENSOR_FILE, read_pack, write_pack
from offramp.testing.packs import random_pack
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONFIG = toy_config(hidden_size=40, vocab_size=90, num_heads=2, num_kv_heads=1)  # 4 layers
MODEL = "ab" * 32
IDS = np.array([0, 3, 17, 89], np.int32)

Tensors = dict[str, NDArray[Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter pack of q8 matrices with a perceptron at each of two exits."""
    write_pack(tmp_path / "pack", random_pack(CONFIG, model=MODEL, vocab_ids=IDS, predictors="mlp"))
    return tmp_path / "pack"


CONFIG_LIES: dict[str, tuple[dict[str, object], str]] = {
    "another format": ({"format": "offramp-drafter"}, "format='offramp-drafter' is impossible"),
    "no format": ({"format": None}, "'format' is missing"),
    "a later version": ({"version": 2}, "version=2"),
    "an unknown field": ({"temperature": 1}, "unknown field 'temperature'"),
    "no model": ({"model": None}, "'model' is missing"),
    "a short hash": ({"model": "abc"}, "model='abc' is impossible"),
    "a hash in capitals": ({"model": "AB" * 32}, "model='AB"),
    "a number for the model": ({"model": 7}, "model=7"),
    "no layers": ({"layers": []}, r"layers=\[\] is impossible"),
    "layers as a text": ({"layers": "1"}, "layers='1'"),
    "layer 0": ({"layers": [0, 1]}, r"layers=\[0, 1\]"),
    "the last layer": ({"layers": [1, 4]}, r"layers=\[1, 4\]"),
    "a layer twice": ({"layers": [1, 1]}, r"layers=\[1, 1\]"),
    "falling layers": ({"layers": [2, 1]}, r"layers=\[2, 1\]"),
    "a true layer": ({"layers": [True, 2]}, r"layers=\[True, 2\]"),
    "a broken layer": ({"layers": [1.5]}, r"layers=\[1\.5\]"),
    "a layer without tensors": ({"layers": [1, 2, 3]}, r"tensor 'exits\.3\.norm' of shape \[40\] is missing"),
    "a layer fewer": ({"layers": [1]}, r"tensor 'exits\.2\.\w+.*' is not called for"),
    "another kind": ({"kind": "block"}, "kind='block'"),
    "shared with a rank": ({"kind": "shared"}, "rank=5"),
    "shared with tensors": ({"kind": "shared", "rank": None}, r"'exits\.1\.down\.quants' is not called for"),
    "no rank": ({"rank": None}, "'rank' is missing"),
    "rank 0": ({"rank": 0}, "rank=0"),
    "a huge rank": ({"rank": 2**31 - 1}, r"'exits\.1\.down\.quants' has shape \[5, 64\].*\[2147483647, 64\]"),
    "another rank": ({"rank": 6}, r"has shape \[5, 64\].*\[6, 64\]"),
    "another width": ({"hidden_size": 41}, r"'exits\.1\.norm' has shape \[40\].*\[41\]"),
    "width 0": ({"hidden_size": 0}, "hidden_size=0"),
    "fewer tokens": ({"vocabulary": 3}, r"'vocab_ids' has shape \[4\].*\[3\]"),
    "all tokens": ({"vocabulary": None}, "'vocab_ids' is not called for"),
    "more tokens than there are": ({"vocabulary": 91}, "vocabulary=91"),
    "a vocabulary for one exit": ({"vocabulary": [4]}, r"vocabulary=\[4\] is impossible"),
    "own vocabularies": ({"vocabulary": [4, 4]}, r"'exits\.1\.vocab_ids' of shape \[4\] is missing"),
    "an empty vocabulary": ({"vocabulary": [4, 0]}, r"vocabulary=\[4, 0\]"),
    "a true vocabulary": ({"vocabulary": [True, 4]}, r"vocabulary=\[True, 4\]"),
    "a smaller vocabulary": ({"vocab_size": 89}, "vocab_ids holds 89, outside the vocabulary of 89"),
    "other predictors": ({"predictors": "linear"}, r"'exits\.1\.predictor\.w1' has shape \[6, 40\].*\[1, 40\]"),
    "no predictors": ({"predictors": None}, r"'exits\.1\.predictor\.b1' is not called for"),
    "unknown predictors": ({"predictors": "forest"}, "predictors='forest'"),
    "provenance as a text": ({"provenance": "mine"}, "provenance='mine'"),
}


@pytest.mark.parametrize("what", CONFIG_LIES)
def test_a_lying_config_is_refused_by_field(folder: Path, what: str) -> None:
    changes, message = CONFIG_LIES[what]
    fields = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps({**fields, **changes}))
    with pytest.raises(CorruptModelError, match=message) as caught:
        read_pack(folder)
    assert caught.value.hint


def without(name: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        del tensors[name]

    return change


def with_(name: str, value: NDArray[Any]) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = value

    return change


def spoiled(name: str, value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name].reshape(-1)[-1] = value

    return change


TENSOR_LIES: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "no norm": (without("exits.2.norm"), r"tensor 'exits\.2\.norm' of shape \[40\] is missing"),
    "no input norm": (without("exits.1.input_norm"), r"'exits\.1\.input_norm' .* is missing"),
    "no quants": (without("exits.1.down.quants"), r"'exits\.1\.down' of shape \[5, 40\] is missing"),
    "no scales": (without("exits.1.up.scales"), r"'exits\.1\.up\.scales' of shape \[40, 1\] is missing"),
    "no ids": (without("vocab_ids"), r"'vocab_ids' of shape \[4\] is missing"),
    "no bias": (without("exits.1.predictor.b1"), r"'exits\.1\.predictor\.b1' is missing"),
    "no last weights": (without("exits.2.predictor.w2"), r"'exits\.2\.predictor\.w2' of shape \[1, 6\] is missing"),
    "an unknown tensor": (with_("exits.1.matrix", np.zeros((90, 40), np.float16)), r"'exits\.1\.matrix' is not called"),
    "down twice": (with_("exits.1.down", np.zeros((5, 40), np.float16)), r"'exits\.1\.down' is not called for"),
    "NaN in a norm": (spoiled("exits.1.norm", np.nan), r"'exits\.1\.norm' holds NaN"),
    "an infinite scale": (spoiled("exits.2.up.scales", np.inf), r"tensor 'exits\.2\.up' holds NaN or infinite"),
    "NaN in a predictor": (spoiled("exits.1.predictor.w1", np.nan), r"'exits\.1\.predictor\.w1' holds NaN"),
    "code -128": (spoiled("exits.1.down.quants", -128), r"'exits\.1\.down' uses codes outside \[-127, 127\]"),
    "an id too large": (spoiled("vocab_ids", 90), "vocab_ids holds 90"),
    "a negative id": (with_("vocab_ids", np.array([-1, 3, 17, 89], np.int32)), "vocab_ids holds -1"),
    "falling ids": (spoiled("vocab_ids", 4), "must ascend, but 4 follows 17"),
    "ids of 64 bits": (with_("vocab_ids", IDS.astype(np.int64)), "'vocab_ids' has type I64, not I32"),
    "a norm of bytes": (with_("exits.1.norm", np.ones(40, np.int8)), r"'exits\.1\.norm' has type I8, not F16"),
    "f32 scales": (with_("exits.1.up.scales", np.ones((40, 1), np.float32)), "has type F32, not F16"),
    "a norm of two dimensions": (with_("exits.1.norm", np.ones((1, 40), np.float32)), r"shape \[1, 40\]"),
    "a scalar bias": (with_("exits.1.predictor.b1", np.ones((), np.float32)), r"has shape \[\], a list of numbers"),
    "no inner layer": (with_("exits.1.predictor.b1", np.ones(0, np.float32)), r"has shape \[0\], a list of numbers"),
    "another inner layer": (
        with_("exits.1.predictor.b1", np.ones(7, np.float32)),
        r"w1' has shape \[6, 40\].*\[7, 40\]",
    ),
}


@pytest.mark.parametrize("what", TENSOR_LIES)
def test_lying_tensors_are_refused_by_name(folder: Path, what: str) -> None:
    change, message = TENSOR_LIES[what]
    tensors = load_file(folder / TENSOR_FILE)
    change(tensors)
    save_file(tensors, folder / TENSOR_FILE)
    with pytest.raises(CorruptModelError, match=message) as caught:
        read_pack(folder)
    assert "exits.safetensors" in caught.value.message


@pytest.mark.parametrize("name", [CONFIG_FILE, TENSOR_FILE])
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_are_refused(folder: Path, name: str, keep: float) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(CorruptModelError, match=name):
        read_pack(folder)


def test_floats_of_every_plain_type_are_read(folder: Path) -> None:
    tensors = load_file(folder / TENSOR_FILE)
    for dtype in (np.float16, np.float32):
        tensors["exits.1.norm"] = np.linspace(0.5, 1.5, 40).astype(dtype)
        save_file(tensors, folder / TENSOR_FILE)
        norm = read_pack(folder).exits[1].head.norm
        assert norm is not None
        assert norm.dtype == np.float32
        assert (norm == tensors["exits.1.norm"]).all()


def check(folder: Path) -> None:
    """Reading, binding and loading give a pack that runs, or an OfframpError."""
    try:
        pack = read_pack(folder)
        bind(pack, model_hash=MODEL, config=CONFIG)
    except OfframpError:
        return
    load_heads(TwinExecutor(toy_source(CONFIG, seed=1), num_pages=1), pack)


FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(data=st.data())
def test_no_damage_raises_anything_else(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([CONFIG_FILE, TENSOR_FILE]))
    whole = (folder / name).read_bytes()
    header = len(whole) if name == CONFIG_FILE else 8 + int.from_bytes(whole[:8], "little")
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, (header if data.draw(st.booleans()) else len(whole)) - 1))
        content[at % len(content)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))] or bytearray(b"{")
    (folder / name).write_bytes(bytes(content))
    try:
        check(folder)
    finally:
        (folder / name).write_bytes(whole)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 6), max_size=4),
    st.lists(st.lists(st.integers(0, 3)), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@FUZZ
@given(data=st.data())
def test_no_value_of_any_field_raises_anything_else(folder: Path, data: st.DataObject) -> None:
    path = folder / CONFIG_FILE
    whole = path.read_text()
    fields = json.loads(whole)
    fields[data.draw(st.sampled_from([*sorted(fields), "other"]))] = data.draw(VALUES)
    path.write_text(json.dumps(fields))
    try:
        check(folder)
    finally:
        path.write_text(whole)


@FUZZ
@given(data=st.data())
def test_no_header_of_the_tensors_raises_anything_else(folder: Path, data: st.DataObject) -> None:
    path = folder / TENSOR_FILE
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    entry = header[data.draw(st.sampled_from(sorted(header)))]
    field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    types = st.sampled_from(["F32", "F16", "BF16", "I8", "I32", "U8", "F64", "BOOL", "Q8_0", "nonsense"])
    entry[field] = data.draw(st.one_of(types, st.permutations([1, *entry["shape"]]), VALUES))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])
    try:
        check(folder)
    finally:
        path.write_bytes(whole)
