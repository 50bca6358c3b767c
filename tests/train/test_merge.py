"""Adapters and directories: what is kept is what was trained, and what is written is what is kept. Needs torch."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from safetensors.numpy import save_file  # noqa: E402

from offramp.errors import (  # noqa: E402
    CorruptModelError,
    InvalidRequestError,
    NumericError,
    ResourceError,
    UnsupportedModelError,
)
from offramp.llm.loading import read_template, read_tokenizer  # noqa: E402
from offramp.model.checkpoint import open_checkpoint  # noqa: E402
from offramp.model.config import RopeConfig, YarnScaling  # noqa: E402
from offramp.model.quantize import dequantize  # noqa: E402
from offramp.model.tensors import is_vector  # noqa: E402
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint  # noqa: E402
from offramp.testing.families import family_config  # noqa: E402
from offramp.testing.models import chat_tokenizer, tokenizer_metadata  # noqa: E402
from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train.adapter import Adapter, make_adapter, read_adapter, write_adapter  # noqa: E402
from offramp.train.decoder import Batch, Decoder, read_decoder  # noqa: E402
from offramp.train.hf_directory import check_writable, write_directory  # noqa: E402
from offramp.train.low_rank import train_low_rank, train_whole  # noqa: E402
from offramp.train.merge import merged_weights, take_changes, trained_weights  # noqa: E402

IDS = np.array([1, 5, 9], np.int32)


def changed_decoder(decoder: Decoder) -> dict[str, torch.Tensor]:
    trained = train_low_rank(decoder, rank=3, seed=0)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in trained.values():
            tensor += 0.05 * torch.randn(tensor.shape, generator=noise)
    return trained


def states(decoder: Decoder) -> np.ndarray:
    ids = torch.arange(24).reshape(2, 12)
    batch = Batch(ids[0, :0], ids, torch.full_like(ids, -1))
    with torch.no_grad():
        x = decoder.embed(batch)
        for layer in range(len(decoder.layers)):
            x = decoder.run_layer(layer, x, batch)
    return x.numpy()


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_merged_weights_are_the_trained_model(family: str, tmp_path: Path) -> None:
    source = toy_source(family_config(family, num_layers=3), seed=2)
    decoder = read_decoder(source)
    before = states(decoder)
    trained = changed_decoder(decoder)
    after = states(decoder)
    adapter = make_adapter(trained, 3, IDS[::-1].copy(), "some-hash", {"rank": 3, "exits": [1]})
    write_adapter(tmp_path / "a", replace(adapter, vocabularies={1: 2}))
    kept = read_adapter(tmp_path / "a", source.config)
    assert kept.ranked.tolist() == IDS[::-1].tolist()
    assert kept.vocabularies == {1: 2}
    weights = dict(merged_weights(source, kept))
    assert weights.keys() == set(source.roles())
    np.testing.assert_array_equal(weights["embedding"], dequantize(source.matrix("embedding")))
    matrices = {role: replace(source.matrix(role), values=weights[role]) for role in weights if not is_vector(role)}
    vectors = {role: weights[role] for role in weights if is_vector(role)}
    merged = states(read_decoder(replace(source, matrices=matrices, vectors=vectors)))
    moved = np.abs(after - before).max()
    assert np.abs(merged - after).max() < 0.05 * moved  # q8 factors and f16 norms
    take_changes(decoder, kept)
    assert np.abs(states(decoder) - merged).max() < 1e-4 * np.abs(merged).max()


def test_wholly_trained_weights_go_back_to_their_roles() -> None:
    source = toy_source(family_config("qwen2", num_layers=2), seed=2)
    decoder = read_decoder(source)
    for role, values in trained_weights(source, decoder):
        np.testing.assert_array_equal(values, role_values(source)[role], role)
    trained = train_whole(decoder)
    with torch.no_grad():
        trained["layers.1.qkv.weight"][decoder.config.num_heads * 16] += 1.0  # the first row of k
        trained["layers.0.qkv.bias"][0] += 1.0
    changed = {
        role
        for role, values in trained_weights(source, decoder)
        if not np.array_equal(values, role_values(source)[role])
    }
    assert changed == {"layers.1.k", "layers.0.q_bias"}


def test_damaged_and_foreign_adapters_are_refused(tmp_path: Path) -> None:
    config = toy_config()
    adapter = make_adapter(changed_decoder(read_decoder(toy_source(config, 2))), 4, IDS, "hash", {"rank": 3})
    adapter.check_model("hash")
    with pytest.raises(InvalidRequestError, match="belongs to the model hash, not to other"):
        adapter.check_model("other")
    path = tmp_path / "a"
    write_adapter(path, adapter)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptModelError, match="no safetensors file"):
        read_adapter(path, config)
    arrays = adapter.arrays | {"down.b.quants": adapter.arrays["down.b.quants"][:, :2]}
    write_adapter(path, Adapter("hash", {"rank": 3}, {}, arrays, {}))
    with pytest.raises(CorruptModelError, match=r"down.b.quants' is \[4, 2, 64\]"):
        read_adapter(path, config)
    with pytest.raises(CorruptModelError, match="the model calls for"):
        read_adapter(path, toy_config(num_layers=5))
    for ids, message in ((IDS[[0, 0]], "no list of different tokens"), (IDS + 9999, "leaves the vocabulary of 260")):
        write_adapter(path, replace(adapter, arrays=adapter.arrays | {"vocab_ids": ids}))
        with pytest.raises(CorruptModelError, match=message):
            read_adapter(path, config)
    write_adapter(path, replace(adapter, recipe={"rank": 3, "exits": [1, 2]}, vocabularies={1: 1}))
    with pytest.raises(CorruptModelError, match="don't fit exits"):
        read_adapter(path, config)
    missing = {name: array for name, array in adapter.arrays.items() if name != "norms.mlp_norm"}
    write_adapter(path, replace(adapter, arrays=missing))
    with pytest.raises(CorruptModelError, match=r"'norms\.mlp_norm' is missing"):
        read_adapter(path, config)
    whole = json.dumps({"model": "hash", "recipe": {"rank": 3}, "figures": {}, "vocabularies": {}})
    for about in ("{", "[]", "{}", whole.replace('"hash"', "3, 4"), whole.replace('{"rank": 3}', "5")):
        save_file(adapter.arrays, path, metadata={"format": "offramp-adapter", "about": about})
        with pytest.raises(CorruptModelError, match="training is damaged"):
            read_adapter(path, config)
    with pytest.raises(InvalidRequestError, match="no file"):
        read_adapter(tmp_path / "nowhere", config)
    write_safetensors_checkpoint(tmp_path / "model", config, role_values(toy_source(config, 2)))
    with pytest.raises(CorruptModelError, match="is not an adapter"):
        read_adapter(tmp_path / "model" / "model.safetensors", config)


def gguf_model(path: Path, **overrides: object) -> Path:
    config = toy_config(vocab_size=chat_tokenizer().vocab_size, **overrides)
    return write_gguf(path / "toy.gguf", config, role_values(toy_source(config, 3)), metadata=tokenizer_metadata())


def test_a_gguf_model_becomes_a_directory(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(gguf_model(tmp_path))
    source = checkpoint.weights("f32")
    check_writable(checkpoint, tmp_path / "out")
    weights = ((role, role_values(source)[role]) for role in source.roles())
    write_directory(checkpoint, weights, tmp_path / "out")
    written = open_checkpoint(tmp_path / "out")
    assert written.config == replace(checkpoint.config, norm_eps=written.config.norm_eps)
    assert set(written.generation.eos_token_ids) == read_tokenizer(checkpoint).eos_token_ids
    for role, values in role_values(written.weights("f32")).items():
        np.testing.assert_array_equal(values, role_values(source)[role].astype(np.float16), role)
    old, new = read_tokenizer(checkpoint), read_tokenizer(written)
    text = "hello world<|im_start|>é 12\n  hello"
    assert new.encode(text) == old.encode(text)
    assert [new.token_bytes(i) for i in range(new.vocab_size)] == [old.token_bytes(i) for i in range(old.vocab_size)]
    assert (new.special_texts, new.bos_token_id, new.eos_token_ids) == (
        old.special_texts, old.bos_token_id, old.eos_token_ids,
    )  # fmt: skip
    messages = [{"role": "user", "content": "hello <|im_end|>"}]
    assert read_template(written, new).encode_chat(new, messages) == read_template(checkpoint, old).encode_chat(
        old, messages
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "toy.gguf"]


def test_a_directory_keeps_its_other_files(tmp_path: Path) -> None:
    config = family_config("gemma3", num_layers=2)
    weights = role_values(toy_source(config, 3))
    extra = {"tokenizer.json": {"x": 1}, "tokenizer_config.json": {"y": 2}}
    checkpoint = open_checkpoint(write_safetensors_checkpoint(tmp_path / "in", config, weights, json_files=extra))
    write_directory(checkpoint, weights.items(), tmp_path / "out")
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text()) == {"y": 2}
    for role, values in role_values(open_checkpoint(tmp_path / "out").weights("f32")).items():
        np.testing.assert_allclose(values, weights[role], atol=2e-3, err_msg=role)


def test_files_may_take_the_place_of_a_models_own(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(gguf_model(tmp_path))
    weights = role_values(checkpoint.weights("f32"))
    files = {"generation_config.json": "{}", "training/about.json": "1"}
    write_directory(checkpoint, weights.items(), tmp_path / "out", files=files)
    assert {name: (tmp_path / "out" / name).read_text() for name in files} == files


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("No space left")])
def test_a_full_disk_leaves_nothing(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise error

    checkpoint = open_checkpoint(gguf_model(tmp_path))
    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(ResourceError, match=r"can't write the model .*/out: No space left"):
        write_directory(checkpoint, role_values(checkpoint.weights("f32")).items(), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.gguf"]


def test_what_can_not_be_written_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(gguf_model(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ResourceError, match="full exists already"):
        check_writable(checkpoint, tmp_path / "full")
    (tmp_path / "scaled").mkdir()
    yarn = YarnScaling(factor=4.0, original_context=128, attention_factor=1.0)
    scaled = open_checkpoint(gguf_model(tmp_path / "scaled", rope=RopeConfig(rotary_dim=16, scaling=yarn)))
    with pytest.raises(UnsupportedModelError, match="can't be written"):
        check_writable(scaled, tmp_path / "out")
    weights = role_values(checkpoint.weights("f32"))
    weights["layers.1.q"][0, 0] = 1e6
    with pytest.raises(NumericError, match=r"layers\.1\.q"):
        write_directory(checkpoint, weights.items(), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "scaled", "toy.gguf"]
