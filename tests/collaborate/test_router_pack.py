"""Router packs: back as they were, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.certificate import ModelRunning, RecordedAnswers
from offramp.collaborate.router.pack import RouterPack, bind
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.router.pack_file import TENSOR_FILE, read_router, write_router
from offramp.collaborate.threshold import CertifiedThreshold, ThresholdCalibration
from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError
from offramp.exits.certificate import SamplingSettings
from offramp.testing.toy import toy_config
from tests.collaborate.prompts import FEATURES, examples

HASH = "ab" * 32
CERTIFIED = CertifiedThreshold(
    risk=0.1, delta=0.05, threshold=0.6, big_share=0.4, num_prompts=90, mean_loss=0.02, p_value=0.003
)
RUNNING = ModelRunning(config="12ab", weights="q8 30", kv="f16", template="34cd")
ANSWERS = RecordedAnswers(sampling=SamplingSettings(temperature=0.5), max_tokens=64, big_model="cd" * 32, big=RUNNING)


def pack(kind: str = "linear") -> RouterPack:
    data = examples(100)
    router = ROUTERS[kind].fit(data, ROUTERS[kind].grid[0], 0)
    config = RouterConfig(
        model=HASH,
        model_name="toy",
        num_layers=4,
        hidden_size=FEATURES // 2,
        depth=3,
        running=RUNNING,
        prompt_tokens=512,
        chat=True,
        kind=kind,
        models=("little", "big"),
        little="little",
        big="big",
        num_prompts=100,
        certified=(CERTIFIED,),
        answers=ANSWERS,
        provenance={"file": "x.jsonl"},
    )
    scores = np.sort(router.scores(data.embeddings))
    return RouterPack(config=config, router=router, calibration=ThresholdCalibration(scores=scores))


@pytest.mark.parametrize("kind", sorted(ROUTERS))
def test_every_kind_scores_as_before_once_read(kind: str, tmp_path: Path) -> None:
    written = pack(kind)
    read = write_router(tmp_path / "router", written)
    fresh = examples(50, seed=8).embeddings
    assert (read.router.scores(fresh) == written.router.scores(fresh)).all()
    assert read.config == written.config
    assert read.calibration.scores == pytest.approx(written.calibration.scores, abs=1e-7)
    assert read.calibration.certified == (CERTIFIED,)
    assert len(read.identity) == 64


def test_a_pack_without_certificates_says_nothing_of_answers(tmp_path: Path) -> None:
    config = replace(pack().config, certified=(), answers=None)
    assert write_router(tmp_path / "router", replace(pack(), config=config)).config == config


def test_a_pack_takes_the_place_of_a_pack_and_of_nothing_else(tmp_path: Path) -> None:
    first = write_router(tmp_path / "router", pack("linear"))
    second = write_router(tmp_path / "router", pack("knn"))
    assert first.identity != second.identity
    (tmp_path / "router" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequestError, match=r"notes\.txt"):
        write_router(tmp_path / "router", pack())


def test_a_pack_belongs_to_one_model() -> None:
    bind(pack(), model_hash=HASH, config=toy_config(num_layers=4, hidden_size=FEATURES // 2))
    with pytest.raises(InvalidRequestError, match="tensor hash"):
        bind(pack(), model_hash="cd" * 32, config=toy_config(num_layers=4, hidden_size=FEATURES // 2))
    with pytest.raises(CorruptModelError, match="num_layers=4, the model has 5"):
        bind(pack(), model_hash=HASH, config=toy_config(num_layers=5, hidden_size=FEATURES // 2))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "offramp-exits", "another kind"),
        ("version", 9, "version"),
        ("model", "short", "model"),
        ("depth", 5, "depth"),
        ("kind", "deep", "kind"),
        ("little", "huge", "little"),
        ("big", "little", "big"),
        ("models", ["little"], "models"),
        ("models", ["little", "little", "big"], "models"),
        ("num_prompts", 0, "num_prompts"),
        ("certified", {}, "certified"),
        ("certified", [{"risk": 2}], "delta"),
        ("running", None, "running"),
        ("running", {"kv": "f16"}, "config"),
        ("running", {**asdict(RUNNING), "speed": "high"}, "'speed' is unknown"),
        ("prompt_tokens", 0, "prompt_tokens"),
        ("answers", None, "answers"),
        ("answers", {"max_tokens": 5}, "sampling"),
        ("answers", {**ANSWERS.fields(), "big": None}, "big_model|big"),
        ("answers", {**ANSWERS.fields(), "big_model": None}, "big"),
        ("answers", {**ANSWERS.fields(), "stop": "x"}, "'stop' is unknown"),
        ("colour", 1, "unknown field 'colour'"),
    ],
)
def test_a_config_that_lies_is_refused_by_its_field(field: str, value: object, message: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(CorruptModelError, match=message):
        read_router(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("weights"), "'weights' of shape"),
        (lambda tensors: tensors.update(weights=np.zeros(5, np.float32)), "has shape"),
        (lambda tensors: tensors.update(bias=np.array([np.nan], np.float32)), "NaN"),
        (lambda tensors: tensors.update(spare=np.zeros(5, np.float32)), "'spare' is not called for"),
        (lambda tensors: tensors.update(sample=tensors["sample"][::-1].copy()), "does not rise"),
    ],
)
def test_damaged_tensors_are_refused_by_name(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    folder = written(tmp_path)
    tensors = load_file(folder / TENSOR_FILE)
    change(tensors)
    save_file(tensors, folder / TENSOR_FILE)
    with pytest.raises(CorruptModelError, match=message):
        read_router(folder)


def test_neighbours_of_no_number_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, "knn")
    tensors = load_file(folder / TENSOR_FILE)
    tensors["neighbours"] = np.array([0.5], np.float32)
    save_file(tensors, folder / TENSOR_FILE)
    with pytest.raises(CorruptModelError, match="neighbours"):
        read_router(folder)


@pytest.mark.parametrize("name", ["config.json", TENSOR_FILE])
def test_a_digit_or_bit_that_was_changed_is_noticed(name: str, tmp_path: Path) -> None:
    """Everything still reads: the last digit of a certified threshold, the last bit of a tensor's number."""
    folder = written(tmp_path)
    stored = bytearray((folder / name).read_bytes())
    if name == TENSOR_FILE:
        stored[-4] ^= 1  # the lowest byte of the last number: little-endian f32
    else:
        place = stored.index(b'"threshold": 0.6')
        stored[place + len(b'"threshold": 0.')] = ord("5")
    (folder / name).write_bytes(stored)
    with pytest.raises(CorruptModelError, match="was changed: its sha256 is") as caught:
        read_router(folder)
    assert str(folder) in caught.value.message
    assert "train it again" in caught.value.hint


def test_fields_in_another_order_are_the_same_pack(tmp_path: Path) -> None:
    folder = written(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(dict(reversed(config.items()))))
    assert read_router(folder).config == pack().config


def test_a_pack_without_its_hash_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptModelError, match="'sha256' is missing"):
        read_router(folder)


def test_a_pack_of_the_old_form_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = written(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    (folder / "config.json").write_text(json.dumps({**config, "version": 1}))
    with pytest.raises(CorruptModelError, match="version=1") as caught:
        read_router(folder)
    assert "train the router again" in caught.value.hint


def test_a_missing_pack_is_told_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no router pack") as caught:
        read_router(tmp_path / "none")
    assert "train router" in caught.value.hint


def written(tmp_path: Path, kind: str = "linear") -> Path:
    write_router(tmp_path / "router", pack(kind))
    return tmp_path / "router"
