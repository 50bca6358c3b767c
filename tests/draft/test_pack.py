"""Drafter packs: what is written is what is read; damaged and foreign ones are refused by field or tensor."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from offramp.draft.pack import bind
from offramp.draft.pack_file import (
    CONFIG_FILE,
    TENSOR_FILE,
    check_drafter_target,
    read_drafter,
    shipped_drafter,
    write_drafter,
)
from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError, OfframpError
from offramp.model.quantize import dequantize
from offramp.model.shipped import PACKS, shipped_packs
from offramp.model.tensors import F32Matrix, Q8Matrix
from offramp.testing.side import random_drafter
from offramp.testing.toy import toy_config

CONFIG = toy_config(hidden_size=40, vocab_size=90, num_heads=4, num_kv_heads=2, head_dim=10)  # 4 layers
MODEL = "ab" * 32
IDS = np.array([0, 3, 17, 89], np.int32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_drafter(tmp_path / "pack", random_drafter(CONFIG, model=MODEL, vocab_ids=IDS))
    return tmp_path / "pack"


@pytest.mark.parametrize("weights", ["q8", "f32"])
def test_what_is_written_is_read(tmp_path: Path, weights: Any) -> None:
    pack = random_drafter(CONFIG, model=MODEL, vocab_ids=IDS, weights=weights)
    read = write_drafter(tmp_path / "pack", pack)
    assert read.config == pack.config
    assert read.folder == tmp_path / "pack"
    assert len(read.identity) == 64
    for name in ("first_norm", "next_norm", "norm", "vocab_ids"):
        np.testing.assert_array_equal(getattr(read.weights, name), getattr(pack.weights, name))
    pairs = [(read.weights.first, pack.weights.first), (read.weights.next, pack.weights.next)]
    pairs += [(getattr(read.weights.layer, part), getattr(pack.weights.layer, part)) for part in ("q", "v", "down")]
    for kept, given_ in pairs:
        assert isinstance(kept, Q8Matrix if weights == "q8" else F32Matrix)
        values = dequantize(given_)
        np.testing.assert_array_equal(
            dequantize(kept), values if weights == "q8" else values.astype(np.float16).astype(np.float32)
        )
    bind(read, model_hash=MODEL, config=CONFIG)


def test_a_pack_is_replaced_by_a_pack_alone(tmp_path: Path, folder: Path) -> None:
    before = read_drafter(folder).identity
    assert write_drafter(folder, random_drafter(CONFIG, model=MODEL, seed=5)).identity != before
    model = tmp_path / "model"
    model.mkdir()
    check_drafter_target(model)
    (model / CONFIG_FILE).write_text(json.dumps({"format": "offramp-exits", "version": 1}))
    with pytest.raises(InvalidRequestError, match=r"can't become a drafter pack: .*format="):
        check_drafter_target(model)
    (model / "notes.txt").touch()
    with pytest.raises(InvalidRequestError, match=r"it holds notes\.txt"):
        write_drafter(model, random_drafter(CONFIG))
    assert (model / "notes.txt").exists()


def test_a_missing_pack_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no drafter pack .*nowhere: no such folder"):
        read_drafter(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotFoundError, match="a file"):
        read_drafter(tmp_path / "file")


def test_a_shipped_pack_is_found_by_its_name_and_by_its_model(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.model.shipped.PACKS", tmp_path)
    monkeypatch.chdir("/")
    assert shipped_drafter(lambda config: True) is None
    write_drafter(tmp_path / "drafters" / "toy", random_drafter(CONFIG, model=MODEL, seed=4))
    pack = read_drafter("toy")
    assert pack.folder == tmp_path / "drafters" / "toy"
    with pytest.raises(ModelNotFoundError) as caught:
        read_drafter("toys")
    assert caught.value.hint.endswith("by name there are: toy")
    found = shipped_drafter(lambda config: config.model == MODEL)
    assert found is not None
    assert found.identity == pack.identity
    assert shipped_drafter(lambda config: config.model == "cd" * 32) is None


@pytest.mark.parametrize("name", shipped_packs("drafters"))
def test_what_is_shipped_is_whole_small_and_says_where_it_comes_from(name: str) -> None:
    pack = read_drafter(name)
    assert pack.folder == PACKS / "drafters" / name
    assert pack.config.provenance["prompts"]
    assert sum(file.stat().st_size for file in pack.folder.iterdir()) <= 4 << 20


def test_another_models_pack_is_refused_naming_both(folder: Path) -> None:
    pack = read_drafter(folder)
    with pytest.raises(InvalidRequestError, match=f"belongs to toy with the tensor hash {MODEL}, .* has {'cd' * 32}"):
        bind(pack, model_hash="cd" * 32, config=CONFIG)
    for field, value in {"num_layers": 5, "hidden_size": 80, "num_heads": 8, "num_kv_heads": 4}.items():
        with pytest.raises(CorruptModelError, match=f"says {field}="):
            bind(pack, model_hash=MODEL, config=replace(CONFIG, **{field: value}))  # type: ignore[arg-type]


CONFIG_LIES: dict[str, tuple[dict[str, object], str]] = {
    "an exit pack": ({"format": "offramp-exits"}, "format='offramp-exits' is impossible"),
    "a later version": ({"version": 2}, "version=2"),
    "an unknown field": ({"rank": 1}, "unknown field 'rank'"),
    "a short hash": ({"model": "abc"}, "model='abc' is impossible"),
    "another kind": ({"kind": "medusa"}, "kind='medusa'"),
    "no taps": ({"taps": []}, r"taps=\[\] is impossible"),
    "tap 0": ({"taps": [0, 2]}, r"taps=\[0, 2\]"),
    "a tap behind the last layer": ({"taps": [1, 5]}, r"taps=\[1, 5\]"),
    "falling taps": ({"taps": [2, 1]}, r"taps=\[2, 1\]"),
    "a true tap": ({"taps": [True, 2]}, r"taps=\[True, 2\]"),
    "a tap more": ({"taps": [1, 2, 4]}, r"'first.quants' has shape \[40, 128\].*\[40, 160\]"),
    "another width": ({"width": 25}, r"'gate.quants' has shape \[24, 64\].*\[25, 64\]"),
    "no window": ({"window": 0}, "window=0"),
    "another hidden size": ({"hidden_size": 41}, r"'attn_norm' has shape \[40\].*\[41\]"),
    "more heads": ({"num_heads": 5}, r"'q.quants' has shape \[40, 64\].*\[50, 64\]"),
    "fewer tokens": ({"vocabulary": 3}, r"'vocab_ids' has shape \[4\].*\[3\]"),
    "more tokens than there are": ({"vocabulary": 91}, "vocabulary=91"),
    "a smaller vocabulary": ({"vocab_size": 89}, "vocab_ids holds 89, outside the vocabulary of 89"),
    "provenance as a text": ({"provenance": "mine"}, "provenance='mine'"),
}


@pytest.mark.parametrize("what", CONFIG_LIES)
def test_a_lying_config_is_refused_by_field(folder: Path, what: str) -> None:
    changes, message = CONFIG_LIES[what]
    fields = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps({**fields, **changes}))
    with pytest.raises(CorruptModelError, match=message) as caught:
        read_drafter(folder)
    assert caught.value.hint


TENSOR_LIES = {
    "none of one": ("norm", None, "'norm' of shape .* is missing"),
    "one too many": ("extra", np.zeros(3, np.float32), "'extra' is not called for"),
    "a norm of NaN": ("norm", np.full(40, np.nan, np.float32), "'norm' holds NaN"),
    "a scale of infinity": ("next.scales", np.full((40, 3), np.inf, np.float16), "NaN or infinite"),
    "a code of -128": ("o.quants", np.full((40, 64), -128, np.int8), "codes outside"),
    "falling ids": ("vocab_ids", np.array([0, 17, 3, 89], np.int32), "must ascend"),
    "long ids": ("vocab_ids", np.array([0, 3, 17, 89], np.int64), "has type I64"),
    "a short matrix": ("k.quants", np.zeros((19, 64), np.int8), r"\[19, 64\].*\[20, 64\]"),
}


@pytest.mark.parametrize("what", TENSOR_LIES)
def test_damaged_tensors_are_refused_by_name(folder: Path, what: str) -> None:
    name, value, message = TENSOR_LIES[what]
    tensors = load_file(folder / TENSOR_FILE)
    tensors.pop(name, None)
    if value is not None:
        tensors[name] = value
    save_file(tensors, folder / TENSOR_FILE)
    with pytest.raises(CorruptModelError, match=message):
        read_drafter(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damage_is_an_offramp_error(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([CONFIG_FILE, TENSOR_FILE]))
    path = folder / name
    whole = path.read_bytes()
    try:
        broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
        for place in data.draw(st.lists(st.integers(0, max(0, min(2000, len(broken) - 1))), max_size=4)):
            if broken:
                broken[place] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(broken))
        with suppress(OfframpError):
            read_drafter(folder)
    finally:
        path.write_bytes(whole)
