"""What each family's metadata says of its layers: biases, norms, windows, ropes; and what is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.errors import CorruptModelError, ModelError, UnsupportedModelError
from offramp.model.checkpoint import open_checkpoint
from offramp.model.config import (
    LayerAttention,
    LayerForm,
    LinearScaling,
    LongRopeScaling,
    ModelConfig,
    RopeConfig,
    layers_attention,
)
from offramp.model.config_gguf import config_from_gguf
from offramp.model.config_hf import config_from_hf
from offramp.model.families import FAMILIES
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields
from offramp.model.rope import inverse_frequencies, rope_tables
from offramp.model.stored import StoredTensor
from offramp.native.packed import packed_layer
from offramp.native.prepared import prepared_weights
from offramp.testing.checkpoints import (
    hf_tensors,
    role_values,
    write_gguf,
    write_safetensors,
    write_safetensors_checkpoint,
)
from offramp.testing.metadata import gguf_architecture, gguf_config, hf_config
from offramp.testing.toy import toy_config, toy_source

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 260,
    "max_position_embeddings": 8192,
}
FULL, NEAR = "full_attention", "sliding_attention"


def hf(architecture: str, **changes: object) -> ModelConfig:
    """A config.json of this architecture; None stands for JSON null."""
    return config_from_hf(Fields({"architectures": [architecture], **SIZES, **changes}, "config.json"))


def widths(config: ModelConfig) -> list[int | None]:
    return [config.attention_of(i).window for i in range(config.num_layers)]


def bases(config: ModelConfig) -> list[float | None]:
    ropes = [config.attention_of(i).rope for i in range(config.num_layers)]
    return [rope and rope.base for rope in ropes]


def gguf(family: str, *, tensors: Mapping[str, list[float]] | None = None, **changes: object) -> ModelConfig:
    """A toy config of the family through GGUF metadata; keys with `__` for `.` after the architecture, None removes."""
    config = family_config(family)
    architecture = gguf_architecture(config)
    metadata: dict[str, Any] = {"general.architecture": architecture, **gguf_config(config)}
    metadata |= {f"{architecture}.{key.replace('__', '.')}": value for key, value in changes.items()}
    present = {
        "token_embd.weight": StoredTensor("token_embd.weight", "F32", (260, 64), np.zeros(260 * 64 * 4, np.uint8))
    }
    for name, values in (tensors or {}).items():
        present[name] = StoredTensor(name, "F32", (len(values),), np.array(values, "<f4").view(np.uint8))
    return config_from_gguf(GgufFile(Path("x.gguf"), 3, {k: v for k, v in metadata.items() if v is not None}, present))


def family_config(name: str, **changes: object) -> ModelConfig:
    family = FAMILIES[name]
    values: dict[str, object] = {"family": name, "form": family.form, "num_layers": 8, "norm_eps": 2.0**-17}
    if family.scaled_embedding:
        values["embedding_scale"] = 8.0
    return toy_config(**{**values, **changes})


def test_what_layers_are_made_of() -> None:
    assert hf("LlamaForCausalLM").form == LayerForm()
    assert hf("Qwen2ForCausalLM").form == LayerForm(qkv_bias=True)
    assert hf("Qwen3ForCausalLM").form == LayerForm(qk_norm=True)
    gemma = hf("Gemma3ForCausalLM")
    assert gemma.form == LayerForm(qk_norm=True, post_norms=True, activation="gelu_tanh")
    assert (gemma.embedding_scale, gemma.query_scale, gemma.tie_embeddings) == (8.0, None, True)


def test_fields_left_out_are_those_of_transformers() -> None:
    assert (hf("Qwen3ForCausalLM").head_dim, hf("Gemma3ForCausalLM").head_dim) == (128, 256)
    assert hf("Gemma3ForCausalLM", query_pre_attn_scalar=64).query_scale == 0.125
    assert hf("SmolLM3ForCausalLM").rope.base == 2e6
    assert hf("SmolLM3ForCausalLM").tie_embeddings
    assert hf("Phi3ForCausalLM").norm_eps == 1e-5
    assert not hf("MistralForCausalLM").tie_embeddings


def test_b56_a_window_that_is_switched_off_is_none() -> None:
    for architecture in ("Qwen2ForCausalLM", "Qwen3ForCausalLM"):
        off = hf(architecture, sliding_window=16, use_sliding_window=False, max_window_layers=0)
        assert off == hf(architecture, sliding_window=None) == hf(architecture)
        assert off.attention == ()
        listed = hf(architecture, sliding_window=16, use_sliding_window=False, layer_types=[NEAR] * 8)
        assert listed == off
        on = hf(architecture, sliding_window=16, use_sliding_window=True, max_window_layers=6)
        assert widths(on) == [None] * 6 + [16] * 2


def test_windows_of_mistral_and_phi() -> None:
    assert widths(hf("MistralForCausalLM")) == [4096] * 8
    assert hf("MistralForCausalLM", sliding_window=None).attention == ()
    assert hf("MistralForCausalLM", sliding_window=8192).attention == ()
    assert widths(hf("Phi3ForCausalLM", sliding_window=2047)) == [2047] * 8
    assert hf("Phi3ForCausalLM").attention == ()


def test_gemma3_looks_far_in_every_sixth_layer() -> None:
    config = hf("Gemma3ForCausalLM", sliding_window=512)
    assert widths(config) == [512] * 5 + [None] + [512] * 2
    assert bases(config) == [1e4] * 5 + [1e6] + [1e4] * 2
    assert config.ropes == (RopeConfig(base=1e6, rotary_dim=256), RopeConfig(base=1e4, rotary_dim=256))
    listed = hf("Gemma3ForCausalLM", sliding_window=512, layer_types=[FULL] + [NEAR] * 7)
    assert widths(listed) == [None] + [512] * 7
    assert widths(hf("Gemma3ForCausalLM", sliding_window=512, sliding_window_pattern=2)) == [512, None] * 4


def test_gemma3_ropes_in_both_spellings() -> None:
    older = hf(
        "Gemma3ForCausalLM",
        rope_theta=5e5,
        rope_local_base_freq=200.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    newer = hf(
        "Gemma3ForCausalLM",
        rope_parameters={
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
            NEAR: {"rope_type": "default", "rope_theta": 200.0},
        },
    )
    assert older == newer
    assert older.rope.scaling == LinearScaling(factor=8.0)
    assert older.attention[0].rope == RopeConfig(base=200.0, rotary_dim=256)


def test_smollm3_has_layers_without_rope() -> None:
    assert [base is None for base in bases(hf("SmolLM3ForCausalLM"))] == [False, False, False, True] * 2
    listed = hf("SmolLM3ForCausalLM", no_rope_layers=[0, 1, 1, 1, 1, 1, 1, 1, 0])
    assert [base is None for base in bases(listed)] == [True] + [False] * 7
    windowed = hf("SmolLM3ForCausalLM", use_sliding_window=True, sliding_window=64)
    assert widths(windowed) == [None, None, None, 64] * 2
    assert hf("SmolLM3ForCausalLM", no_rope_layers=[1] * 8).attention == ()


FACTORS = {"short_factor": [1.0] * 4 + [2.0] * 2, "long_factor": [3.0] * 6}
LONGROPE = {"type": "longrope", **FACTORS}


@pytest.mark.parametrize("spelling", [{"rope_type": "longrope"}, {"type": "su"}, {"type": "yarn"}])
@pytest.mark.parametrize("group", ["rope_scaling", "rope_parameters"])
def test_longrope(spelling: dict[str, str], group: str) -> None:
    fields: dict[str, object] = {"original_max_position_embeddings": 4096, group: {**spelling, **FACTORS}}
    config = hf("Phi3ForCausalLM", partial_rotary_factor=0.75, **fields)
    scaling = config.rope.scaling
    assert isinstance(scaling, LongRopeScaling)
    assert (config.rope.rotary_dim, config.head_dim) == (12, 16)
    assert scaling.attention_factor == math.sqrt(1 + math.log(2) / math.log(4096))
    plain = inverse_frequencies(RopeConfig(rotary_dim=12))
    np.testing.assert_array_equal(inverse_frequencies(config.rope), plain / 3)
    short = config.for_context(4096).rope
    np.testing.assert_array_equal(inverse_frequencies(short), plain / np.array([1.0] * 4 + [2.0] * 2))
    assert rope_tables(short, 0, 1)[0][0, 0] == np.float32(scaling.attention_factor)
    assert config.for_context(8192) == config


def test_only_longrope_depends_on_the_context_served() -> None:
    gemma = hf("Gemma3ForCausalLM", sliding_window=512)
    assert gemma.for_context(100) == gemma


@pytest.mark.parametrize(
    ("architecture", "changes", "error"),
    [
        ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("Gemma3ForCausalLM", {"hidden_activation": "gelu"}, "hidden_activation='gelu'"),
        ("Gemma3ForCausalLM", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0"),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 0}, "sliding_window_pattern=0"),
        ("Gemma3ForConditionalGeneration", {}, "Gemma3ForConditionalGeneration"),
        ("Qwen2ForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act='gelu_pytorch_tanh'"),
        ("Qwen3ForCausalLM", {"attention_bias": True}, "attention_bias"),
        ("Qwen3ForCausalLM", {"layer_types": [FULL]}, "layer_types"),
        ("Qwen3ForCausalLM", {"layer_types": ["linear_attention"] * 8}, "'linear_attention' is not supported"),
        ("MistralForCausalLM", {"layer_types": [FULL, NEAR] * 4}, "layer_types differ"),
        ("MistralForCausalLM", {"sliding_window": -1}, "sliding_window=-1"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [2] * 8}, "no_rope_layers"),
        ("SmolLM3ForCausalLM", {"no_rope_layer_interval": 0}, "no_rope_layer_interval=0"),
        ("LlamaForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor=1.5"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", **FACTORS}}, "divisors=6"),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "long_factor"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {**FACTORS, "type": "longrope", "long_factor": [1.0]}},
            r"factors=\(6, 1\)",
        ),
        ("Phi3ForCausalLM", {"rope_scaling": {**FACTORS, "type": "longrope", "long_factor": [0.0] * 6}}, "divisor=0.0"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", **FACTORS}, "original_max_position_embeddings": 1},
            "original_max_position_embeddings",
        ),
    ],
)
def test_variants_and_nonsense_are_refused_by_name(architecture: str, changes: dict[str, object], error: str) -> None:
    with pytest.raises(ModelError, match=error):
        hf(architecture, **changes)


@pytest.mark.parametrize("name", FAMILIES)
def test_plain_configs_round_trip(name: str) -> None:
    near = LayerAttention(rope=RopeConfig(base=1e4, rotary_dim=16), window=64)
    rope = RopeConfig(base=1e6, rotary_dim=16)
    changes: dict[str, object] = {"rope": rope}
    if name == "gemma3":
        changes["attention"] = tuple(near if (i + 1) % 6 else LayerAttention(rope=rope) for i in range(8))
    if name == "smollm3":
        changes["attention"] = tuple(LayerAttention(rope=rope if (i + 1) % 4 else None) for i in range(8))
    if name in ("mistral", "phi3"):
        changes["attention"] = (LayerAttention(rope=rope, window=64),) * 8
    config = family_config(name, **changes)
    assert config_from_hf(Fields(hf_config(config), "config.json")) == config


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"mistral"}))
def test_files_of_both_formats_hold_the_same_model(name: str, tmp_path: Path) -> None:
    """Names, stacks, interleaving and norm offsets: weights come back equal, and so does what is prepared of them."""
    config = family_config(name, num_layers=2)
    values = role_values(toy_source(config, seed=3))
    for path in (
        write_safetensors_checkpoint(tmp_path / "st", config, values),
        write_gguf(tmp_path / "x.gguf", config, values),
    ):
        checkpoint = open_checkpoint(path)
        read = role_values(checkpoint.weights("f32"))
        assert read.keys() == values.keys()
        assert all((read[role] == values[role]).all() for role in values)
        prepared = prepared_weights(
            checkpoint.weights("q8"), files=checkpoint.files, fmt="q8", source_hash=lambda: "", folder=tmp_path / "kept"
        )
        layer = packed_layer(prepared, 1)
        for part in ("q_bias", "v_bias", "k_norm", "post_mlp_norm", "mlp_norm"):
            vector = getattr(layer, part)
            assert (vector is None) == (f"layers.1.{part}" not in values)
            assert vector is None or (vector == values[f"layers.1.{part}"]).all()


def test_b77_rows_of_qwen2_are_not_interleaved(tmp_path: Path) -> None:
    config = family_config("qwen2", num_layers=1)
    values = role_values(toy_source(config, seed=3))
    checkpoint = open_checkpoint(write_gguf(tmp_path / "x.gguf", config, values))
    raw = np.frombuffer(checkpoint.tensors["blk.0.attn_q.weight"].data.tobytes(), "<f4").reshape(64, 64)
    assert (raw == values["layers.0.q"]).all()
    assert (role_values(checkpoint.weights("f32"))["layers.0.q"] == raw).all()


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_stacked_tensors_are_cut_by_rows_in_every_format(kind: str, tmp_path: Path) -> None:
    """Phi's one tensor of q, k, v and one of gate and up."""
    config = family_config("phi3", num_layers=1)
    values = role_values(toy_source(config, seed=3))
    together = open_checkpoint(write_gguf(tmp_path / "phi.gguf", config, values, matrix_type=kind))
    tensor = together.tensors["blk.0.attn_qkv.weight"]
    assert tensor.shape == (4 * 16 + 2 * 2 * 16, 64)
    parts = [together.roles[f"layers.0.{part}"] for part in ("q", "k", "v")]
    assert b"".join(part.data.tobytes() for part in parts) == tensor.data.tobytes()
    read = role_values(together.weights("f32"))
    for part in ("q", "k", "v", "gate", "up"):
        error = np.abs(read[f"layers.0.{part}"] - values[f"layers.0.{part}"]).max()
        assert error < {"F32": 1e-9, "Q8_0": 0.01, "Q4_1": 0.1}[kind]


def test_a_stack_of_the_wrong_height_is_refused_by_name(tmp_path: Path) -> None:
    config = family_config("phi3", num_layers=1)
    values = role_values(toy_source(config, seed=3))
    short = {**values, "layers.0.v": values["layers.0.v"][:16]}
    with pytest.raises(
        CorruptModelError, match=r"qkv_proj.weight' has shape \[112, 64\], the config calls for \[128, 64\]"
    ):
        open_checkpoint(write_safetensors_checkpoint(tmp_path, config, short))


def test_biases_and_norms_that_lack_are_refused_by_name(tmp_path: Path) -> None:
    config = family_config("qwen2", num_layers=1)
    values = role_values(toy_source(config, seed=3))
    without = {role: value for role, value in values.items() if role != "layers.0.k_bias"}
    with pytest.raises(CorruptModelError, match=r"k_proj.bias' of shape \[32\] is missing"):
        open_checkpoint(write_safetensors_checkpoint(tmp_path / "st", config, without))
    with pytest.raises(CorruptModelError, match=r"attn_k.bias' of shape \[32\] is missing"):
        open_checkpoint(write_gguf(tmp_path / "x.gguf", config, without))


def test_biases_that_the_family_lacks_are_refused_by_name(tmp_path: Path) -> None:
    config = family_config("qwen3", num_layers=1)
    path = write_safetensors_checkpoint(tmp_path, config, role_values(toy_source(config, seed=3)))
    (path / "model.safetensors").unlink()
    extra = {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    tensors = hf_tensors(config, role_values(toy_source(config, seed=3)))
    write_safetensors(path / "model.safetensors", {**tensors, **extra})
    with pytest.raises(UnsupportedModelError, match=r"q_proj\.bias"):
        open_checkpoint(path)


def test_gguf_windows() -> None:
    assert widths(gguf("llama", attention__sliding_window=64)) == [64] * 8
    assert gguf("llama", attention__sliding_window=0).attention == ()
    assert gguf("llama", attention__sliding_window=512).attention == ()
    assert widths(gguf("phi3", attention__sliding_window=64)) == [64] * 8
    gemma = gguf("gemma3", attention__sliding_window=64, rope__freq_base=1e6)
    assert widths(gemma) == [64] * 5 + [None] + [64] * 2
    assert bases(gemma) == [1e4] * 5 + [1e6] + [1e4] * 2
    assert gguf("gemma3").attention == ()
    periods = gguf(
        "gemma3", attention__sliding_window=64, attention__sliding_window_pattern=4, rope__freq_base_swa=77.0
    )
    assert widths(periods) == [64, 64, 64, None] * 2
    assert periods.attention[0].rope == RopeConfig(base=77.0, rotary_dim=16)
    listed = gguf("gemma3", attention__sliding_window=64, attention__sliding_window_pattern=[True, False] * 4)
    assert widths(listed) == [64, None] * 4
    with pytest.raises(CorruptModelError, match="sliding_window_pattern"):
        gguf("gemma3", attention__sliding_window=64, attention__sliding_window_pattern=[True] * 3)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "smollm3"])
def test_gguf_windows_of_families_that_have_them_in_some_layers(name: str) -> None:
    """Which layers is not understood: a file that lists them loads, as one does whose window hides nothing."""
    plain = gguf(name)
    for window in (0, 512, 4096):
        assert gguf(name, attention__sliding_window=window) == plain
    for pattern, expected in (
        ([False, True] * 4, [None, 64] * 4),
        ([0, 0, 0, 1] * 2, [None, None, None, 64] * 2),
        ([False] * 8, [None] * 8),
        (2, [64, None] * 4),
        (1, [None] * 8),
        (0, [64] * 8),
    ):
        listed = gguf(name, attention__sliding_window=64, attention__sliding_window_pattern=pattern)
        assert widths(listed) == expected
        assert bases(listed) == bases(plain)
    with pytest.raises(UnsupportedModelError, match=r"sliding_window=64 without .*sliding_window_pattern"):
        gguf(name, attention__sliding_window=64)
    for bad in ([True] * 3, [2] * 8, -1, "all"):
        with pytest.raises(CorruptModelError, match="sliding_window_pattern"):
            gguf(name, attention__sliding_window=64, attention__sliding_window_pattern=bad)


def test_gguf_local_ropes() -> None:
    """The base that converters write now, and widths that may not differ."""
    keys = {"attention__sliding_window": 64, "rope__freq_base": 1e6}
    assert bases(gguf("gemma3", rope__freq_base_swa=500.0, **keys)) == [500.0] * 5 + [1e6] + [500.0] * 2
    assert gguf("gemma3", rope__dimension_count_swa=16, attention__value_length_swa=16, **keys).head_dim == 16
    with pytest.raises(UnsupportedModelError, match="dimension_count_swa=8"):
        gguf("gemma3", rope__dimension_count_swa=8, **keys)


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"mistral"}))
@pytest.mark.parametrize("stacked", [True, False])
def test_gguf_q_k_v_stacked_or_apart(name: str, stacked: bool, tmp_path: Path) -> None:
    config = family_config(name, num_layers=2)
    values = role_values(toy_source(config, seed=3))
    names = {f"layers.{{i}}.{part}": f"blk.{{i}}.attn_{'qkv' if stacked else part}.weight" for part in "qkv"}
    names |= {f"layers.{{i}}.{part}_bias": f"blk.{{i}}.attn_{'qkv' if stacked else part}.bias" for part in "qkv"}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "x.gguf", config, values, names=names))
    assert ("blk.1.attn_qkv.weight" in checkpoint.tensors) == stacked
    read = role_values(checkpoint.weights("f32"))
    assert read.keys() == values.keys()
    assert all((read[role] == values[role]).all() for role in values)


def test_parts_of_a_vector_in_blocks_are_refused_by_name() -> None:
    tensor = StoredTensor("blk.0.attn_qkv.bias", "Q8_0", (96,), np.zeros(3 * 34, np.uint8))
    with pytest.raises(UnsupportedModelError, match=r"'blk.0.attn_qkv.bias' of type Q8_0 and shape \[96\]"):
        tensor.part(0, 32)


def test_gguf_smollm3_has_layers_without_rope() -> None:
    assert [base is None for base in bases(gguf("smollm3"))] == [False, False, False, True] * 2


def test_gguf_gemma3_scales() -> None:
    config = gguf("gemma3")
    assert (config.embedding_scale, config.query_scale) == (8.0, None)
    deep = gguf("gemma3", block_count=62, attention__head_count=2, attention__head_count_kv=2)
    assert deep.query_scale == 1 / math.sqrt(32)


def test_gguf_longrope() -> None:
    tensors = {"rope_factors_long.weight": [3.0] * 6, "rope_factors_short.weight": [1.0] * 6}
    keys: dict[str, object] = {"rope__dimension_count": 12, "rope__scaling__original_context_length": 64}
    config = gguf("phi3", tensors=tensors, rope__scaling__attn_factor=1.25, **keys)
    assert config.rope.scaling == LongRopeScaling(
        short_divisors=(1.0,) * 6, long_divisors=(3.0,) * 6, original_context=64, attention_factor=1.25, context=512
    )
    with pytest.raises(CorruptModelError, match=r"'rope_factors_short.weight' is missing"):
        gguf("phi3", tensors={"rope_factors_long.weight": [3.0] * 6}, **keys)
    with pytest.raises(CorruptModelError, match="contradicts"):
        gguf("phi3", tensors=tensors, rope__scaling__type="linear", **keys)
    with pytest.raises(UnsupportedModelError, match="'longrope' is not supported"):
        gguf("phi3", rope__scaling__type="longrope")


def test_settings_of_layers_have_one_form() -> None:
    rope = RopeConfig(rotary_dim=16)
    assert layers_attention([LayerAttention(rope=rope, window=512)] * 2, rope, 512) == ()
    assert layers_attention([LayerAttention(rope=rope, window=511)], rope, 512)[0].window == 511
    with pytest.raises(CorruptModelError, match="window=0"):
        LayerAttention(rope=rope, window=0)
    with pytest.raises(CorruptModelError, match="attention settings=1"):
        toy_config(attention=(LayerAttention(rope=None),))


DIMENSIONS = {
    "hidden_size": ("embedding_length", 128),
    "intermediate_size": ("feed_forward_length", 128),
    "num_attention_heads": ("attention.head_count", 8),
    "num_key_value_heads": ("attention.head_count_kv", 4),
    "head_dim": ("attention.key_length", 32),
    "vocab_size": ("vocab_size", 261),
    "num_hidden_layers": ("block_count", 3),
}
"""Fields of both formats, and a value that the tensors of a toy model contradict."""


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"mistral"}))
@pytest.mark.parametrize("field", DIMENSIONS)
def test_a_config_that_contradicts_the_tensors_is_refused_with_both_sizes(
    name: str, field: str, tmp_path: Path
) -> None:
    config = family_config(name, num_layers=2)
    values = role_values(toy_source(config, seed=3))
    key, value = DIMENSIONS[field]
    changes: dict[str, Any] = {field: value, "layer_types": None, "no_rope_layers": None}
    architecture = gguf_architecture(config)
    metadata: dict[str, Any] = {f"{architecture}.{key}": value}
    if field == "head_dim":
        metadata[f"{architecture}.attention.value_length"] = value
        metadata[f"{architecture}.rope.dimension_count"] = value
    message = r"tensor '.*' (has shape \[.*\], the config calls for \[.*\]|of shape \[.*\] is missing)"
    with pytest.raises(CorruptModelError, match=message):
        open_checkpoint(write_safetensors_checkpoint(tmp_path / "st", config, values, config_fields=changes))
    with pytest.raises(CorruptModelError, match=message):
        open_checkpoint(write_gguf(tmp_path / "x.gguf", config, values, metadata=metadata))


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"mistral"}))
def test_layers_that_the_config_leaves_out_are_refused(name: str, tmp_path: Path) -> None:
    config = family_config(name, num_layers=2)
    values = role_values(toy_source(config, seed=3))
    fields = {"num_hidden_layers": 1, "layer_types": None, "no_rope_layers": None}
    with pytest.raises(UnsupportedModelError, match=r"'model\.layers\.1\."):
        open_checkpoint(write_safetensors_checkpoint(tmp_path / "st", config, values, config_fields=fields))
    metadata: dict[str, Any] = {f"{gguf_architecture(config)}.block_count": 1}
    with pytest.raises(UnsupportedModelError, match=r"'blk\.1\."):
        open_checkpoint(write_gguf(tmp_path / "x.gguf", config, values, metadata=metadata))
