"""From a checkpoint on disk to canonical weights, in both formats and every weight type."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.errors import CorruptModelError, ModelError, ModelNotFoundError, UnsupportedModelError
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.config import ModelConfig, RopeConfig
from offramp.model.quantize import dequantize, quantize_q4, quantize_q8
from offramp.model.stored import StoredTensor, decode_rows
from offramp.model.tensors import F32Matrix, Q4Matrix, Q8Matrix, WeightFormat, is_vector, layer_weights
from offramp.model.weights import half_split_order
from offramp.testing.checkpoints import (
    RoleWeights,
    interleave,
    role_values,
    write_gguf,
    write_safetensors,
    write_safetensors_checkpoint,
)
from offramp.testing.toy import toy_config, toy_source

CONFIG = toy_config(num_layers=2, norm_eps=2.0**-17, tie_embeddings=False)
TIED = dataclasses.replace(CONFIG, tie_embeddings=True)
WEIGHTS = role_values(toy_source(CONFIG, 5))
TIED_WEIGHTS = {role: values for role, values in WEIGHTS.items() if role != "lm_head"}

Floats = NDArray[np.float32]
WriteGguf = Callable[..., Checkpoint]


@pytest.fixture
def gguf(tmp_path_factory: pytest.TempPathFactory) -> WriteGguf:
    """Writes a new GGUF file and opens it."""

    def write(weights: RoleWeights = WEIGHTS, config: ModelConfig = CONFIG, **options: Any) -> Checkpoint:
        return open_checkpoint(write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf", config, weights, **options))

    return write


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> WriteGguf:
    """Writes a new safetensors directory and opens it."""

    def write(weights: RoleWeights = WEIGHTS, config: ModelConfig = CONFIG, **options: Any) -> Checkpoint:
        return open_checkpoint(write_safetensors_checkpoint(tmp_path_factory.mktemp("st"), config, weights, **options))

    return write


def assert_equal(left: RoleWeights, right: RoleWeights) -> None:
    assert left.keys() == right.keys()
    for role, values in left.items():
        assert (values == right[role]).all(), role


def with_bytes(checkpoint: Checkpoint, role: str, at: int, raw: bytes) -> Checkpoint:
    """The checkpoint with some bytes of one tensor replaced, in memory."""
    tensor = checkpoint.roles[role]
    data = tensor.data.copy()
    data[at : at + len(raw)] = np.frombuffer(raw, np.uint8)
    changed = StoredTensor(tensor.name, tensor.dtype, tensor.shape, data)
    return dataclasses.replace(checkpoint, roles={**checkpoint.roles, role: changed})


def matrices(weights: RoleWeights) -> list[str]:
    return [role for role in weights if not is_vector(role)]


def test_permuted_gguf_equals_its_safetensors_twin(gguf: WriteGguf, directory: WriteGguf) -> None:
    """B77: GQA 4:2, q and k rows interleaved in the file only; f32 weights come back equal, not just close."""
    from_gguf, from_directory = gguf(), directory()
    assert from_gguf.config == from_directory.config == CONFIG
    assert_equal(role_values(from_gguf.weights("f32")), WEIGHTS)
    assert_equal(role_values(from_directory.weights("f32")), WEIGHTS)
    raw = decode_rows(from_gguf.roles["layers.0.q"], 0, 64)
    assert (raw != WEIGHTS["layers.0.q"]).any()


def test_interleaving_is_the_converters() -> None:
    """The converter views a head's rows as [2, dim / 2] and swaps the two: written out independently here."""
    values = WEIGHTS["layers.1.k"]
    swapped = values.reshape(2, 2, 8, 64).swapaxes(1, 2).reshape(values.shape)
    assert (interleave(values, CONFIG) == swapped).all()
    assert (swapped[half_split_order(2, 16, 16)] == values).all()


def test_only_the_rotated_rows_of_a_head_are_reordered() -> None:
    assert half_split_order(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_safetensors_types_and_shards(directory: WriteGguf, dtype: str, num_shards: int) -> None:
    rounded = role_values(directory(dtype=dtype, num_shards=num_shards).weights("f32"))
    for role, values in WEIGHTS.items():
        np.testing.assert_allclose(rounded[role], values, rtol=2**-8, atol=1e-7)
    q8 = directory(dtype=dtype, num_shards=num_shards).weights("auto").matrix("layers.1.down")
    expected = quantize_q8(rounded["layers.1.down"])
    assert isinstance(q8, Q8Matrix)
    assert (q8.quants == expected.quants).all()
    assert (q8.scales == expected.scales).all()


def stored(checkpoint: Checkpoint, role: str) -> Floats:
    """The file's own values of a role, decoded without the code under test's formats, rope order undone."""
    tensor = checkpoint.roles[role]
    values = decode_rows(tensor, 0, tensor.num_rows)
    interleaved = checkpoint.kind == "gguf" and role.rpartition(".")[2] in ("q", "k")
    return values[half_split_order(len(values) // 16, 16, 16)] if interleaved else values


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_blocks_are_kept_without_loss(gguf: WriteGguf, kind: str) -> None:
    checkpoint = gguf(matrix_type=kind)
    weights = checkpoint.weights("auto")
    for role in matrices(WEIGHTS):
        matrix = weights.matrix(role)
        assert isinstance(matrix, Q8Matrix if kind == "Q8_0" else Q4Matrix)
        assert matrix.shape == WEIGHTS[role].shape
        assert (dequantize(matrix) == stored(checkpoint, role)).all(), role


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "F16", "BF16"])
def test_decoding_agrees_with_the_gguf_package(gguf: WriteGguf, kind: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize as reference

    tensor = gguf(matrix_type=kind).roles["layers.0.gate"]
    expected = reference(np.array(tensor.row_bytes(0, 96)), GGMLQuantizationType[kind])
    assert (decode_rows(tensor, 0, 96) == expected).all()


AUTO = {"F32": Q8Matrix, "F16": Q8Matrix, "BF16": Q8Matrix, "Q5_0": Q8Matrix, "Q8_0": Q8Matrix, "Q4_0": Q4Matrix}


@pytest.mark.parametrize("kind", [*AUTO, "Q4_1"])
@pytest.mark.parametrize("fmt", ["auto", "f32", "q8", "q4"])
def test_formats_per_stored_type(gguf: WriteGguf, kind: str, fmt: WeightFormat) -> None:
    """What is not kept as stored is exactly the quantization of the stored values."""
    checkpoint = gguf(matrix_type=kind)
    weights = checkpoint.weights(fmt)
    for role in ("embedding", "layers.1.k", "layers.0.down", "lm_head"):
        matrix, values = weights.matrix(role), stored(checkpoint, role)
        head = role in ("embedding", "lm_head")
        wanted = {
            "auto": AUTO.get(kind, Q4Matrix),
            "f32": F32Matrix,
            "q8": Q8Matrix,
            "q4": Q8Matrix if head else Q4Matrix,
        }
        assert type(matrix) is wanted[fmt], role
        kept = (kind == "Q8_0" and wanted[fmt] is Q8Matrix) or (kind.startswith("Q4") and wanted[fmt] is Q4Matrix)
        if kept or fmt == "f32":
            assert (dequantize(matrix) == values).all(), role
        else:
            again = quantize_q8(values) if wanted[fmt] is Q8Matrix else quantize_q4(values)
            assert (dequantize(matrix) == dequantize(again)).all(), role
    assert (weights.vector("final_norm") == WEIGHTS["final_norm"]).all()


def test_mixed_types_are_handled_per_tensor(gguf: WriteGguf) -> None:
    weights = gguf(matrix_type="Q4_1", types={"embedding": "Q8_0", "lm_head": "F16"}).weights()
    kinds = {role: type(weights.matrix(role)) for role in ("embedding", "layers.0.v", "lm_head")}
    assert kinds == {"embedding": Q8Matrix, "layers.0.v": Q4Matrix, "lm_head": Q8Matrix}
    assert layer_weights(weights, 1).gate.shape == (96, 64)


def test_foreign_types_are_logged_once(gguf: WriteGguf, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "offramp"):
        role_values(gguf(matrix_type="Q5_0").weights())
    assert [record.getMessage() for record in caplog.records] == [
        "toy.gguf: 16 tensors of type Q5_0 are dequantized and stored in another format"
    ]


def test_code_minus_128_is_quantized_again(gguf: WriteGguf, caplog: pytest.LogCaptureFixture) -> None:
    """q8 codes stay within 127; a Q8_0 file may hold -128."""
    edited = with_bytes(gguf(matrix_type="Q8_0"), "layers.0.v", 2, b"\x80")
    with caplog.at_level(logging.WARNING, "offramp"):
        matrix = edited.weights().matrix("layers.0.v")
    assert isinstance(matrix, Q8Matrix)
    assert matrix.quants.min() == -127
    assert "-128" in caplog.text


def test_tied_models_need_no_head(gguf: WriteGguf, directory: WriteGguf) -> None:
    """B84: tied in config.json, or a GGUF without output.weight: there is no lm_head role, the embedding serves."""
    for checkpoint in (directory(TIED_WEIGHTS, TIED), gguf(TIED_WEIGHTS, TIED)):
        assert checkpoint.config == TIED
        assert "lm_head" not in checkpoint.weights().roles()


def test_a_head_that_repeats_a_tied_embedding_is_passed_over(directory: WriteGguf) -> None:
    checkpoint = directory({**WEIGHTS, "lm_head": WEIGHTS["embedding"]}, TIED, num_shards=2)
    assert checkpoint.config == TIED
    assert "lm_head" not in checkpoint.roles


def test_a_head_that_differs_from_a_tied_embedding_counts(
    directory: WriteGguf, caplog: pytest.LogCaptureFixture
) -> None:
    """B84, as transformers takes a config.json that contradicts the tensors; also where one value differs."""
    other = WEIGHTS["embedding"].copy()
    other[259, 63] += 1
    for head in (WEIGHTS["lm_head"], other):
        checkpoint = directory({**WEIGHTS, "lm_head": head}, TIED)
        assert checkpoint.config == CONFIG
        assert (role_values(checkpoint.weights("f32"))["lm_head"] == head).all()
    assert "lm_head.weight differs from the embedding" in caplog.text


def test_a_tied_head_without_an_embedding_serves_as_both(directory: WriteGguf) -> None:
    """B84, as transformers ties whichever of the two is there."""
    alone = {"lm_head": WEIGHTS["embedding"]} | {r: v for r, v in TIED_WEIGHTS.items() if r != "embedding"}
    checkpoint = directory(alone, TIED)
    assert checkpoint.config == TIED
    assert_equal(role_values(checkpoint.weights("f32")), TIED_WEIGHTS)
    with pytest.raises(CorruptModelError, match=r"'model\.embed_tokens\.weight' of shape \[260, 64\] is missing"):
        directory(alone, CONFIG)
    with pytest.raises(CorruptModelError, match=r"'model\.embed_tokens\.weight' of shape \[260, 64\] is missing"):
        directory({role: values for role, values in alone.items() if role != "lm_head"}, TIED)


def test_an_untied_model_without_its_head_is_refused(directory: WriteGguf) -> None:
    """B84: never random or zero logits."""
    with pytest.raises(CorruptModelError, match=r"'lm_head.weight' of shape \[260, 64\] is missing"):
        directory(TIED_WEIGHTS, CONFIG)


def test_missing_and_misshapen_tensors_are_refused_by_name(gguf: WriteGguf, directory: WriteGguf) -> None:
    without = {role: values for role, values in WEIGHTS.items() if role != "layers.1.up"}
    with pytest.raises(CorruptModelError, match=r"'blk.1.ffn_up.weight' of shape \[96, 64\] is missing"):
        gguf(without)
    with pytest.raises(
        CorruptModelError, match=r"o_proj.weight' has shape \[64, 32\], the config calls for \[64, 64\]"
    ):
        directory({**WEIGHTS, "layers.0.o": WEIGHTS["layers.0.o"][:, :32]})
    with pytest.raises(CorruptModelError, match=r"'output_norm.weight' has shape \[1, 64\]"):
        gguf({**WEIGHTS, "final_norm": WEIGHTS["final_norm"][None]})


def test_unknown_tensors_are_refused_by_name(tmp_path: Path) -> None:
    """A bias that the config does not announce would otherwise be dropped silently."""
    path = write_safetensors_checkpoint(tmp_path, TIED, TIED_WEIGHTS)

    def reopen_with(name: str) -> Checkpoint:
        tensors = open_checkpoint(path).tensors.values()
        content = {t.name: decode_rows(t, 0, t.num_rows).reshape(t.shape) for t in tensors}
        (path / "model.safetensors").unlink()  # the old file is still mapped
        write_safetensors(path / "model.safetensors", {**content, name: np.ones(8, np.float32)})
        return open_checkpoint(path)

    reopen_with("model.layers.0.self_attn.rotary_emb.inv_freq")
    with pytest.raises(UnsupportedModelError, match=r"q_proj\.bias"):
        reopen_with("model.layers.0.self_attn.q_proj.bias")


NAN_BYTES = {
    "F32": (2, b"\xc0\x7f"),  # the upper half of the first value
    "F16": (0, b"\x00\x7e"),
    "Q8_0": (34, b"\x00\x7e"),  # the scale of the second block
    "Q4_0": (18, b"\x00\x7c"),
    "Q4_1": (20 + 2, b"\x00\x7e"),  # the minimum of the second block
}
"""Where a matrix gets a NaN or an infinity, by stored type."""


@pytest.mark.parametrize("kind", NAN_BYTES)
@pytest.mark.parametrize("fmt", ["auto", "f32", "q8", "q4"])
def test_nan_in_a_matrix_is_refused_by_name(gguf: WriteGguf, kind: str, fmt: WeightFormat) -> None:
    at, bad = NAN_BYTES[kind]
    damaged = with_bytes(gguf(matrix_type=kind), "layers.1.q", at, bad)
    with pytest.raises(CorruptModelError, match=r"'blk\.1\.attn_q\.weight' holds NaN"):
        damaged.weights(fmt).matrix("layers.1.q")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_in_a_vector_is_refused_by_name(directory: WriteGguf, bad: float) -> None:
    norm = WEIGHTS["layers.1.mlp_norm"].copy()
    norm[3] = bad
    with pytest.raises(CorruptModelError, match="post_attention_layernorm"):
        directory({**WEIGHTS, "layers.1.mlp_norm": norm}).weights().vector("layers.1.mlp_norm")


def test_a_tensor_of_integers_is_unsupported(tmp_path: Path) -> None:
    path = write_safetensors_checkpoint(tmp_path, TIED, TIED_WEIGHTS)
    file = path / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"dtype": "F32"', b'"dtype": "I32"', 1))
    with pytest.raises(UnsupportedModelError, match="has type I32"):
        open_checkpoint(path)


def test_the_hash_follows_names_types_shapes_and_bytes(gguf: WriteGguf, directory: WriteGguf) -> None:
    first = directory().source_hash()
    assert len(first) == 64
    assert directory(num_shards=2).source_hash() == first
    changed = WEIGHTS["layers.0.q"].copy()
    changed[0, 0] += 1
    others = [directory({**WEIGHTS, "layers.0.q": changed}), directory(dtype="F16"), gguf()]
    assert len({first, *(other.source_hash() for other in others)}) == 4


def test_tokenizer_material_and_generation_settings(tmp_path: Path, gguf: WriteGguf) -> None:
    checkpoint = gguf(metadata={"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": 7})
    assert checkpoint.tokenizer_source == {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.eos_token_id": 7,
    }
    assert checkpoint.generation.eos_token_ids == (7,)
    path = write_safetensors_checkpoint(
        tmp_path / "st",
        CONFIG,
        WEIGHTS,
        config_fields={"eos_token_id": 1},
        json_files={"generation_config.json": {"eos_token_id": [2, 1], "temperature": 0.2}},
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.tokenizer_source == path
    assert checkpoint.generation.eos_token_ids == (2, 1)
    assert checkpoint.generation.temperature == 0.2


def test_partial_rotation_is_for_families_that_have_it(gguf: WriteGguf) -> None:
    config = dataclasses.replace(CONFIG, rope=RopeConfig(rotary_dim=8))
    with pytest.raises(UnsupportedModelError, match=r"llama\.rope\.dimension_count=8 differs"):
        gguf(WEIGHTS, config)
    checkpoint = gguf(WEIGHTS, dataclasses.replace(config, family="phi3"))
    assert checkpoint.config.rope.rotary_dim == 8
    assert_equal(role_values(checkpoint.weights("f32")), WEIGHTS)


def test_a_directory_with_one_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", CONFIG, WEIGHTS)
    assert open_checkpoint(tmp_path).path == tmp_path / "a.gguf"
    write_gguf(tmp_path / "b.gguf", CONFIG, WEIGHTS)
    with pytest.raises(ModelNotFoundError, match=r"2 GGUF files: a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


def test_templates_in_a_directory_replace_those_of_its_gguf_file(tmp_path: Path) -> None:
    own = {"tokenizer.chat_template": "own", "tokenizer.chat_template.tool_use": "own", "tokenizer.ggml.model": "gpt2"}
    path = write_gguf(tmp_path / "a.gguf", CONFIG, WEIGHTS, metadata=own)
    assert open_checkpoint(tmp_path).tokenizer_source == open_checkpoint(path).tokenizer_source
    (tmp_path / "chat_template.jinja").write_text("mine")
    rest = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2"}
    assert open_checkpoint(tmp_path).tokenizer_source == {**rest, "tokenizer.chat_template": "mine"}
    assert open_checkpoint(path).tokenizer_source == {**rest, **own}  # others may lie in that folder
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    named = {"tokenizer.chat_template": "mine", "tokenizer.chat_template.tool_use": "tools"}
    assert open_checkpoint(tmp_path).tokenizer_source == {**rest, **named}


def test_a_directory_with_a_gguf_file_beside_a_config(tmp_path: Path) -> None:
    """As repositories of GGUF files often are; safetensors, where there are any, come first."""
    write_gguf(tmp_path / "a.gguf", CONFIG, WEIGHTS)
    (tmp_path / "config.json").write_text("{}")
    assert open_checkpoint(tmp_path).kind == "gguf"
    write_safetensors_checkpoint(tmp_path, CONFIG, WEIGHTS)
    assert open_checkpoint(tmp_path).kind == "safetensors"


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt"])
def test_pickles_are_not_even_opened(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(UnsupportedModelError, match=f"model{suffix} is a pickle") as caught:
        open_checkpoint(path)
    assert "safetensors" in caught.value.hint


def test_wrong_paths_are_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello, I am not a model")
    (tmp_path / "x.safetensors").write_bytes(bytes(9))
    (tmp_path / "empty").mkdir()
    for name, message in {
        "none": "no such file",
        "notes.txt": "not a GGUF file",
        "x.safetensors": "without a config",
        "empty": "holds no model",
    }.items():
        with pytest.raises(ModelError, match=message) as caught:
            open_checkpoint(tmp_path / name)
        assert caught.value.hint


def test_opening_a_checkpoint_does_not_import_the_gguf_package() -> None:
    """It is slow to import, and needed only for rare tensor types."""
    program = "import sys, offramp.model.checkpoint; sys.exit('gguf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.real_model
def test_the_default_model_keeps_its_blocks(default_model: Path) -> None:
    """Q4_1 layers and the Q8_0 embedding without loss, against the gguf package."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize as reference

    checkpoint = open_checkpoint(default_model)
    assert checkpoint.config.rope == RopeConfig(base=100000.0, rotary_dim=64)
    assert (checkpoint.config.num_layers, checkpoint.config.vocab_size, checkpoint.config.tie_embeddings) == (
        30,
        49152,
        True,
    )
    for role, kind in {"embedding": Q8Matrix, "layers.0.q": Q4Matrix, "layers.29.down": Q4Matrix}.items():
        tensor, matrix = checkpoint.roles[role], checkpoint.weights().matrix(role)
        assert isinstance(matrix, kind)
        sample = min(1000, tensor.num_rows)
        values = reference(np.array(tensor.row_bytes(0, sample)), GGMLQuantizationType[tensor.dtype])
        order = half_split_order(sample // 64, 64, 64) if role.endswith(".q") else np.arange(sample)
        assert (dequantize(matrix)[:sample] == values[order]).all()
