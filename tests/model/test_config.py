"""Hugging Face and GGUF metadata -> ModelConfig and generation settings: every spelling, every refusal."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.errors import CorruptModelError, ModelError, UnsupportedModelError
from offramp.model.config import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.config_gguf import config_from_gguf
from offramp.model.config_hf import config_from_hf
from offramp.model.generation import GenerationDefaults, generation_from_gguf, generation_from_hf
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields, parse_json_object, read_json
from offramp.model.rope import inverse_frequencies
from offramp.model.stored import StoredTensor
from offramp.testing.metadata import gguf_config, hf_config
from offramp.testing.toy import toy_config

LLAMA3_FIELDS = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32)


def hf(**changes: object) -> ModelConfig:
    """The toy config through config.json, with some fields changed; None stands for JSON null."""
    return config_from_hf(Fields({**hf_config(toy_config()), **changes}, "config.json"))


def vector(name: str, values: list[float]) -> StoredTensor:
    return StoredTensor(name, "F32", (len(values),), np.array(values, "<f4").view(np.uint8))


def gguf(*, tensors: tuple[StoredTensor, ...] = (), **changes: object) -> ModelConfig:
    """The toy config through GGUF metadata; keys with `__` for `.`, None removes one."""
    metadata: dict[str, Any] = {"general.architecture": "llama", **gguf_config(toy_config())}
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    embedding = StoredTensor("token_embd.weight", "F32", (260, 64), np.zeros(260 * 64 * 4, np.uint8))
    present = {tensor.name: tensor for tensor in (embedding, *tensors)}
    return config_from_gguf(GgufFile(Path("x.gguf"), 3, {k: v for k, v in metadata.items() if v is not None}, present))


def scaling(**fields: object) -> RopeScaling | None:
    return hf(rope_scaling=fields).rope.scaling


def test_hf_config_round_trips() -> None:
    assert hf() == toy_config()
    assert hf(tie_word_embeddings=False) == toy_config(tie_embeddings=False)


def test_hf_model_type_serves_where_no_architecture_is_named() -> None:
    assert hf(architectures=None) == hf()
    with pytest.raises(UnsupportedModelError, match="model_type 'mamba'"):
        hf(architectures=None, model_type="mamba")
    with pytest.raises(CorruptModelError, match="architectures"):
        hf(architectures=None, model_type=None)
    with pytest.raises(CorruptModelError, match="model_type=7"):
        hf(architectures=None, model_type=7)


def test_hf_defaults() -> None:
    config = hf(num_key_value_heads=None, head_dim=None, tie_word_embeddings=None, rope_theta=None, rms_norm_eps=None)
    assert (config.num_kv_heads, config.head_dim, config.tie_embeddings) == (4, 16, False)
    assert (config.rope.base, config.norm_eps) == (10000.0, 1e-6)


def test_hf_head_dim_may_differ_from_the_quotient() -> None:
    config = hf(head_dim=24, hidden_size=90)
    assert (config.head_dim, config.rope.rotary_dim, config.hidden_size) == (24, 24, 90)


def test_rope_theta_in_either_place() -> None:
    assert hf(rope_theta=5e5).rope.base == 5e5
    assert hf(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope.base == 5e5
    assert hf(rope_parameters={"rope_theta": 5e5}).rope == RopeConfig(base=5e5, rotary_dim=16)


@pytest.mark.parametrize("group", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_llama3_in_all_spellings(group: str, key: str) -> None:
    """B82: the scaling is read wherever and however it is spelled."""
    assert hf(**{group: {key: "llama3", **LLAMA3_FIELDS}}).rope.scaling == LLAMA3


def test_both_groups_must_agree() -> None:
    same = {"rope_type": "linear", "factor": 2.0}
    assert hf(rope_scaling=same, rope_parameters=dict(same)).rope.scaling == LinearScaling(factor=2.0)
    older = {"type": "linear", "factor": 2.0}
    newer = {"rope_type": "linear", "rope_theta": 5e5}
    assert hf(rope_scaling=older, rope_parameters=newer).rope == hf(rope_scaling=same, rope_theta=5e5).rope
    for other in ({"rope_type": "linear", "factor": 4.0}, {"type": "yarn", "factor": 2.0}):
        with pytest.raises(CorruptModelError, match=r"contradict each other in '(factor|rope_type)'"):
            hf(rope_scaling=same, rope_parameters=other)
    with pytest.raises(CorruptModelError, match="one has a group for each layer type"):
        hf(rope_scaling=same, rope_parameters={"full_attention": same})


def test_other_scalings() -> None:
    assert scaling(rope_type="default") is None
    assert scaling(type="linear", factor=2) == LinearScaling(factor=2.0)
    assert scaling(rope_type="yarn", factor=4.0) == YarnScaling(
        factor=4.0, original_context=512, attention_factor=0.1 * math.log(4.0) + 1.0
    )
    given = scaling(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=128, attention_factor=1.5,
        beta_fast=16, beta_slow=2, truncate=False,
    )  # fmt: skip
    assert given == YarnScaling(
        factor=4.0, original_context=128, attention_factor=1.5, beta_fast=16.0, beta_slow=2.0, truncate=False
    )


def test_yarn_factor_and_mscale_defaults() -> None:
    """Without a factor it is the ratio of the contexts; mscale over mscale_all_dim replaces the paper's factor."""
    read = scaling(rope_type="yarn", original_max_position_embeddings=128, mscale=1.0, mscale_all_dim=0.5)
    assert isinstance(read, YarnScaling)
    assert read.factor == 4.0
    assert read.attention_factor == pytest.approx((0.1 * math.log(4.0) + 1) / (0.05 * math.log(4.0) + 1))


def test_unused_rope_fields_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "offramp"):
        scaling(rope_type="linear", factor=2.0, sharpness=3)
    assert "sharpness" in caplog.text


@pytest.mark.parametrize("kind", ["dynamic", "su", "mrope", "no-such"])
def test_unknown_scalings_are_refused_by_name(kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{kind!r} is not supported"):
        scaling(rope_type=kind, factor=2.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "per layer type"),
    ],
)
def test_hf_variants_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        hf(**changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", []),
        ("architectures", ["LlamaForCausalLM", "Other"]),
        ("num_attention_heads", 0),
        ("num_attention_heads", None),
        ("num_attention_heads", 4.0),
        ("num_attention_heads", True),
        ("num_key_value_heads", -2),
        ("num_hidden_layers", 10**9),
        ("hidden_size", "64"),
        ("vocab_size", 2**40),
        ("rms_norm_eps", math.nan),
        ("rms_norm_eps", 10**400),
        ("rms_norm_eps", -(10**400)),
        ("rope_theta", 10**400),
        ("rms_norm_eps", "1e-5"),
        ("max_position_embeddings", 0),
        ("tie_word_embeddings", 1),
        ("rope_theta", -1),
        ("rope_scaling", "linear"),
        ("hidden_act", 3),
    ],
)
def test_hf_nonsense_is_refused_naming_the_field(field: str, value: object) -> None:
    shown = {"rope_theta": "rope base|rope_theta"}.get(field, field)
    with pytest.raises(CorruptModelError, match=shown):
        hf(**{field: value})


@pytest.mark.parametrize("value", [1e300, 3.5e38, 1e-46, 1e-300])
def test_constants_must_be_f32(value: float) -> None:
    """Beyond f32 an epsilon is infinite, or 0."""
    with pytest.raises(CorruptModelError, match="norm_eps"):
        hf(rms_norm_eps=value)
    with pytest.raises(CorruptModelError, match="factor"):
        hf(rope_scaling={"rope_type": "linear", "factor": value})
    assert hf(rms_norm_eps=3.4e38).norm_eps == 3.4e38
    assert hf(rms_norm_eps=1.5e-45).norm_eps == 1.5e-45


def test_a_yarn_mscale_below_zero_is_refused() -> None:
    """It could divide by zero."""
    group = {"rope_type": "yarn", "factor": math.e, "mscale": 1.0, "mscale_all_dim": -10.0}
    with pytest.raises(CorruptModelError, match="mscale_all_dim"):
        hf(rope_scaling=group)


def test_hidden_size_must_divide_when_head_dim_is_derived() -> None:
    with pytest.raises(CorruptModelError, match="hidden_size=66"):
        hf(hidden_size=66, head_dim=None)


def test_kv_heads_must_divide_heads() -> None:
    with pytest.raises(CorruptModelError, match="num_kv_heads=3"):
        hf(num_key_value_heads=3)


def test_odd_head_dim_is_refused() -> None:
    with pytest.raises(CorruptModelError, match="rotary_dim=15"):
        hf(head_dim=15)


def test_gguf_config_round_trips() -> None:
    config = toy_config(norm_eps=2.0**-17)
    assert gguf(llama__attention__layer_norm_rms_epsilon=2.0**-17) == config
    untied = gguf(tensors=(vector("output.weight", [0.0]),), llama__attention__layer_norm_rms_epsilon=2.0**-17)
    assert untied == dataclasses.replace(config, tie_embeddings=False)


def test_gguf_defaults() -> None:
    config = gguf(
        llama__attention__key_length=None, llama__attention__value_length=None, llama__attention__head_count_kv=None,
        llama__vocab_size=None, llama__rope__dimension_count=None, llama__rope__freq_base=None,
    )  # fmt: skip
    assert (config.head_dim, config.num_kv_heads, config.vocab_size) == (16, 4, 260)
    assert config.rope == RopeConfig(base=10000.0, rotary_dim=16)


def test_gguf_per_layer_counts_must_agree() -> None:
    assert gguf(llama__attention__head_count_kv=[2, 2, 2, 2]).num_kv_heads == 2
    with pytest.raises(UnsupportedModelError, match="head_count_kv differs"):
        gguf(llama__attention__head_count_kv=[2, 2, 4, 2])


def test_gguf_rope_freqs_equal_llama3() -> None:
    """B82: the divisors that converters write instead of llama3's parameters."""
    llama3 = RopeConfig(rotary_dim=16, scaling=LLAMA3)
    plain = inverse_frequencies(RopeConfig(rotary_dim=16))
    divisors = (plain / inverse_frequencies(llama3)).tolist()
    read = gguf(tensors=(vector("rope_freqs.weight", divisors),)).rope
    np.testing.assert_allclose(inverse_frequencies(read), inverse_frequencies(llama3), rtol=1e-6)


def test_gguf_rope_scalings() -> None:
    def read(**keys: object) -> RopeScaling | None:
        named: dict[str, Any] = {f"llama__rope__{key}": value for key, value in keys.items()}
        return gguf(**named).rope.scaling

    assert read(scaling__type="none", scaling__factor=4.0) is None
    assert read(scaling__type="linear", scaling__factor=4.0) == LinearScaling(factor=4.0)
    assert read(scaling__factor=4.0) == LinearScaling(factor=4.0)
    assert read(scale_linear=2.0) == LinearScaling(factor=2.0)
    assert read(scaling__type="yarn", scaling__factor=4.0, scaling__original_context_length=128) == YarnScaling(
        factor=4.0, original_context=128, attention_factor=0.1 * math.log(4.0) + 1.0
    )
    tuned = read(scaling__type="yarn", scaling__factor=4.0, scaling__yarn_attn_factor=1.0)
    assert tuned == YarnScaling(factor=4.0, original_context=512, attention_factor=1.0)
    for kind in ("longrope", "dynamic", "no-such"):
        with pytest.raises(UnsupportedModelError, match=f"'{kind}'"):
            read(scaling__type=kind)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gguf_divisors_are_finite(bad: float) -> None:
    with pytest.raises(CorruptModelError, match=r"'rope_freqs\.weight' holds NaN"):
        gguf(tensors=(vector("rope_freqs.weight", [1.0] * 7 + [bad]),))


def test_gguf_divisors_multiply_with_linear_and_not_with_yarn() -> None:
    tensor = vector("rope_freqs.weight", [1.0] * 7 + [2.0])
    read = gguf(tensors=(tensor,), llama__rope__scaling__factor=4.0).rope.scaling
    assert read == FrequencyDivisors(divisors=(4.0,) * 7 + (8.0,))
    with pytest.raises(UnsupportedModelError, match="rope_freqs"):
        gguf(tensors=(tensor,), llama__rope__scaling__type="yarn", llama__rope__scaling__factor=4.0)
    with pytest.raises(CorruptModelError, match=r"'rope_freqs.weight' has shape \[3\], the rotation calls for \[8\]"):
        gguf(tensors=(vector("rope_freqs.weight", [1.0] * 3),))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"general__architecture": "mamba"}, "'mamba' is not supported"),
        ({"general__architecture": None}, "general.architecture"),
        ({"llama__block_count": 0}, "llama.block_count=0"),
        ({"llama__embedding_length": None}, "llama.embedding_length"),
        ({"llama__attention__layer_norm_rms_epsilon": -1.0}, "norm_eps=-1"),
        ({"llama__attention__value_length": 8}, "value_length"),
        ({"llama__expert_count": 8}, "llama.expert_count=8"),
        ({"llama__attention__sliding_window": -1}, "sliding_window=-1"),
        ({"llama__logit_scale": 2.0}, "logit_scale"),
        ({"llama__rope__dimension_count": 32}, "llama.rope.dimension_count=32"),
        ({"llama__rope__dimension_count": 8}, "llama.rope.dimension_count=8 differs"),
        ({"llama__attention__causal": False}, "attention.causal=False"),
        ({"llama__attention__temperature_scale": 0.1}, "temperature_scale=0.1"),
        ({"llama__attention__key_length_swa": 8}, "key_length_swa differs"),
        ({"llama__nextn_predict_layers": 1}, "nextn_predict_layers=1"),
        ({"llama__rope__dimension_sections": [4, 2, 2, 0]}, "dimension_sections"),
        ({"llama__rope__scaling__yarn_ext_factor": 0.5}, "yarn_ext_factor=0.5"),
        ({"split__count": 3}, "split.count=3"),
    ],
)
def test_gguf_nonsense_and_variants_are_refused_by_name(changes: dict[str, object], error: str) -> None:
    with pytest.raises(ModelError, match=error):
        gguf(**changes)  # type: ignore[arg-type]


def generation(config: dict[str, object], generation: dict[str, object] | None = None) -> GenerationDefaults:
    second = None if generation is None else Fields(generation, "generation_config.json")
    return generation_from_hf(Fields(config, "config.json"), second, 260)


def test_eos_lists_of_both_files_count() -> None:
    """B35: a list in generation_config.json is honoured although config.json names one id."""
    assert generation({"eos_token_id": 5}, {"eos_token_id": [7, 5]}).eos_token_ids == (7, 5)
    assert generation({"eos_token_id": 5}, {"eos_token_id": 7}).eos_token_ids == (7, 5)
    assert generation({"eos_token_id": [5, 6]}).eos_token_ids == (5, 6)
    assert generation({"eos_token_id": None}, {}).eos_token_ids == ()


def test_bos_and_sampling_settings() -> None:
    read = generation({"bos_token_id": 3}, {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "do_sample": True})
    assert read == GenerationDefaults(bos_token_id=3, temperature=0.6, top_p=0.9, top_k=20, do_sample=True)
    assert generation({"bos_token_id": 3}, {"bos_token_id": 4}).bos_token_id == 4


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"eos_token_id": 260}, "id 260 is outside"),
        ({"eos_token_id": [1, -1]}, "eos_token_id"),
        ({"bos_token_id": "1"}, "bos_token_id"),
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_k": 10**400}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_generation_nonsense_is_refused(fields: dict[str, object], error: str) -> None:
    with pytest.raises(CorruptModelError, match=error):
        generation({}, fields)


def test_gguf_generation_settings() -> None:
    metadata = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 9, "general.sampling.temp": 0.5}
    read = generation_from_gguf(Fields(metadata, "x.gguf"), 260)
    assert read == GenerationDefaults(eos_token_ids=(2, 9), temperature=0.5)


def test_gguf_without_bos_has_none() -> None:
    """B79: no default id is invented."""
    assert generation_from_gguf(Fields({}, "x.gguf"), 260) == GenerationDefaults()


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1, "a": 2}', "{", '{"a":' * 100_000])
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(CorruptModelError, match=r"config\.json"):
        parse_json_object(text, "config.json")


def test_a_repeated_key_among_many_is_found_at_once() -> None:
    text = "{" + ", ".join(f'"{i}": 0' for i in range(30_000)) + ', "29999": 1}'
    start = time.monotonic()
    with pytest.raises(CorruptModelError, match="'29999' appears twice"):
        parse_json_object(text, "config.json")
    assert time.monotonic() - start < 1.0


def test_json_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CorruptModelError, match="not UTF-8"):
        read_json(tmp_path / "config.json")
