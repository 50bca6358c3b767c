"""Exit packs go to disk and back, belong to one model, and give their heads to its executor."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offramp.core import Ids
from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError, ResourceError
from offramp.exits.pack import ExitHead, ExitPack, bind, load_heads
from offramp.exits.pack_config import Kind, PredictorKind
from offramp.exits.pack_file import CONFIG_FILE, TENSOR_FILE, check_pack_target, read_pack, write_pack
from offramp.exits.predictors import MlpPredictor
from offramp.model import pack_folder
from offramp.model.executor import FINAL
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import F32Matrix
from offramp.native import build_executor
from offramp.testing.packs import random_pack
from offramp.testing.program import same_bits
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONFIG = toy_config(hidden_size=40, vocab_size=90, num_heads=2, num_kv_heads=1)
MODEL = "ab" * 32
IDS: Ids = np.array([0, 3, 17, 89], np.int32)


def states(count: int = 5) -> ArrayHidden:
    values = np.random.default_rng(0).standard_normal((count, CONFIG.hidden_size))
    return ArrayHidden(values.astype(np.float32))


@pytest.mark.parametrize("predictors", [None, "linear", "mlp"])
@pytest.mark.parametrize("vocab_ids", [None, IDS])
@pytest.mark.parametrize("kind", ["shared", "adapter"])
def test_a_pack_reads_back_as_it_was_written(
    tmp_path: Path, kind: Kind, vocab_ids: Ids | None, predictors: PredictorKind | None
) -> None:
    pack = random_pack(CONFIG, model=MODEL, kind=kind, vocab_ids=vocab_ids, predictors=predictors, layers=(1, 3))
    read = write_pack(tmp_path / "pack", pack)
    assert read.config == pack.config
    assert read.folder == tmp_path / "pack"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [CONFIG_FILE, TENSOR_FILE, "pack"]
    executor, h = TwinExecutor(toy_source(CONFIG, seed=1), num_pages=1), states()
    ours, theirs = load_heads(executor, pack), load_heads(executor, read)
    assert sorted(theirs) == [1, 3]
    for layer, each in read.exits.items():
        assert same_bits(executor.logits(h, ours[layer]), executor.logits(h, theirs[layer]))
        own = pack.exits[layer].predictor
        assert (own is None) == (each.predictor is None) == (predictors is None)
        if own is not None and each.predictor is not None:
            np.testing.assert_allclose(each.predictor.scores(h.numpy(), None), own.scores(h.numpy(), None), atol=2e-3)
    assert set(read.predictors) == (set() if predictors is None else {1, 3})


def test_f32_matrices_are_kept_as_f16_and_from_then_on_exactly(tmp_path: Path) -> None:
    pack = random_pack(CONFIG, weights="f32", predictors="mlp")
    once = write_pack(tmp_path / "once", pack)
    down, kept = pack.exits[1].head.down, once.exits[1].head.down
    assert isinstance(down, F32Matrix)
    assert isinstance(kept, F32Matrix)
    assert same_bits(kept.values, down.values.astype(np.float16).astype(np.float32))
    predictor, stored = pack.exits[1].predictor, once.exits[1].predictor
    assert isinstance(predictor, MlpPredictor)
    assert isinstance(stored, MlpPredictor)
    assert same_bits(stored.w1, predictor.w1.astype(np.float16).astype(np.float32))
    assert same_bits(stored.b1, predictor.b1)
    twice = write_pack(tmp_path / "twice", once)
    assert twice.identity == once.identity


def test_q8_matrices_take_a_byte_a_weight(tmp_path: Path) -> None:
    sizes = {}
    for weights in ("f32", "q8"):
        write_pack(tmp_path / weights, random_pack(CONFIG, rank=64, weights=weights))  # type: ignore[arg-type]
        sizes[weights] = (tmp_path / weights / TENSOR_FILE).stat().st_size
    assert sizes["q8"] < 0.75 * sizes["f32"]


def test_the_identity_is_that_of_the_files(tmp_path: Path) -> None:
    pack = random_pack(CONFIG, model=MODEL)
    first = write_pack(tmp_path / "a", pack)
    assert len(first.identity) == 64
    assert write_pack(tmp_path / "b", pack).identity == first.identity == read_pack(tmp_path / "a").identity
    other = write_pack(tmp_path / "b", random_pack(CONFIG, model=MODEL, seed=1))
    told = write_pack(tmp_path / "c", replace(pack, config=replace(pack.config, provenance={"seed": 2})))
    assert len({first.identity, other.identity, told.identity}) == 3


@pytest.mark.parametrize("kind", ["shared", "adapter"])
def test_each_exit_may_know_tokens_of_its_own(tmp_path: Path, kind: Kind) -> None:
    pack = random_pack(CONFIG, kind=kind, layers=(1, 2, 3), vocab_ids=IDS, own_vocabularies=True)
    read = write_pack(tmp_path / "pack", pack)
    assert read.config == pack.config
    assert read.config.vocabulary == (4, 3, 2)
    executor, h = TwinExecutor(toy_source(CONFIG, seed=1), num_pages=1), states()
    heads = load_heads(executor, read)
    assert [executor.logits(h, head).shape[1] for head in heads.values()] == [4, 3, 2]
    if kind == "shared":
        assert same_bits(executor.logits(h, heads[3]), executor.logits(h, FINAL)[:, IDS[:2]])


def test_exits_without_weights_of_their_own_share_one_head(tmp_path: Path) -> None:
    executor = build_executor(toy_source(CONFIG, seed=1), num_pages=1, threads=1)
    pack = write_pack(tmp_path / "pack", random_pack(CONFIG, kind="shared", layers=(1, 2, 3), vocab_ids=IDS))
    heads = load_heads(executor, pack)
    assert len(set(heads.values())) == 1
    assert same_bits(executor.logits(states(), heads[2]), executor.logits(states(), FINAL)[:, IDS])
    assert len(set(load_heads(executor, random_pack(CONFIG, layers=(1, 2, 3))).values())) == 3


def test_bind_accepts_the_model_and_no_other() -> None:
    pack = random_pack(CONFIG, model=MODEL)
    bind(pack, model_hash=MODEL, config=CONFIG)
    with pytest.raises(InvalidRequestError, match=f"{MODEL}.*{'cd' * 32}") as caught:
        bind(pack, model_hash="cd" * 32, config=CONFIG)
    assert caught.value.param == "exits"
    assert "train" in caught.value.hint


@pytest.mark.parametrize("field", ["num_layers", "hidden_size", "vocab_size"])
def test_a_pack_that_lies_about_its_model_is_refused(field: str) -> None:
    pack = random_pack(CONFIG, model=MODEL)
    lying = replace(pack, config=replace(pack.config, **{field: 41}))
    with pytest.raises(CorruptModelError, match=f"{field}=41, the model has {getattr(CONFIG, field)}"):
        bind(lying, model_hash=MODEL, config=CONFIG)


def test_a_new_pack_takes_the_place_of_an_old_one_and_of_its_calibration(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    write_pack(folder, random_pack(CONFIG, seed=1))
    (folder / "calibration.json").write_text("{}")
    written = write_pack(folder, random_pack(CONFIG, seed=2))
    assert written.identity == read_pack(folder).identity
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG_FILE, TENSOR_FILE]
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


@pytest.mark.parametrize("fault", ["save", "swap"])
def test_a_pack_that_can_not_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = tmp_path / "pack"
    before = write_pack(folder, random_pack(CONFIG, seed=1)).identity
    rename = Path.rename

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def stuck(path: Path, target: Path) -> Path:
        return full() if path.name == "new" else rename(path, target)  # type: ignore[return-value]

    if fault == "save":
        monkeypatch.setattr(pack_folder, "write_file", full)
    else:
        monkeypatch.setattr(Path, "rename", stuck)
    with pytest.raises(ResourceError, match="No space left"):
        write_pack(folder, random_pack(CONFIG, seed=2))
    assert read_pack(folder).identity == before
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_nothing_but_a_pack_is_ever_replaced(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    check_pack_target(model)
    check_pack_target(tmp_path / "new" / "er")
    (model / CONFIG_FILE).write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(InvalidRequestError, match="field 'format' is missing"):
        check_pack_target(model)
    (model / "notes.txt").write_text("dear diary")
    with pytest.raises(InvalidRequestError, match=r"holds notes\.txt"):
        write_pack(model, random_pack(CONFIG))
    assert (model / "notes.txt").exists()
    with pytest.raises(InvalidRequestError, match="can't become an exit pack"):
        write_pack(model / "notes.txt", random_pack(CONFIG))


def test_packs_are_written_into_new_folders_with_ordinary_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = write_pack(Path("some") / "where", random_pack(CONFIG))
    assert written.folder == tmp_path / "some" / "where"
    umask = os.umask(0)
    os.umask(umask)
    assert written.folder.stat().st_mode & 0o777 == 0o777 & ~umask
    assert (written.folder / TENSOR_FILE).stat().st_mode & 0o777 == 0o666 & ~umask


def broken(pack: ExitPack, **changes: object) -> ExitPack:
    """The pack with other parts in its first head."""
    first = replace(pack.exits[1].head, **changes)  # type: ignore[arg-type]
    return replace(pack, exits={**pack.exits, 1: ExitHead(first, pack.exits[1].predictor)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": np.full(40, np.nan, np.float32)}, r"'exits\.1\.norm' holds NaN"),
        ({"norm": np.ones(39, np.float32)}, r"'exits\.1\.norm' has shape \[39\].*\[40\]"),
        ({"down": F32Matrix(np.full((5, 40), 1e6, np.float32))}, r"'exits\.1\.down' holds .*beyond the range of f16"),
        ({"down": F32Matrix(np.ones((6, 40), np.float32))}, r"'exits\.1\.down' has shape \[6, 40\].*\[5, 40\]"),
    ],
)
def test_what_no_one_could_read_is_not_written(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(CorruptModelError, match=message):
        write_pack(tmp_path / "pack", broken(random_pack(CONFIG), **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_a_provenance_that_is_no_json_is_refused(tmp_path: Path, value: object) -> None:
    pack = random_pack(CONFIG)
    with pytest.raises(InvalidRequestError, match="provenance"):
        write_pack(tmp_path / "pack", replace(pack, config=replace(pack.config, provenance={"x": value})))
    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such folder"):
        read_pack(tmp_path / "pack")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelNotFoundError, match="a file"):
        read_pack(tmp_path / "file")
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        read_pack(tmp_path)
