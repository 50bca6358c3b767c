"""Configs as JSON values: equal when read back, refused when they are not what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from offramp.errors import CorruptModelError
from offramp.model.config import (
    FrequencyDivisors,
    LayerAttention,
    LayerForm,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from offramp.model.generation import GenerationDefaults
from offramp.model.plain import from_plain, to_plain
from offramp.testing.toy import toy_config

SCALINGS: list[RopeScaling | None] = [
    None,
    LinearScaling(factor=2.0),
    Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64),
    YarnScaling(factor=4.0, original_context=64, attention_factor=1.1, truncate=False),
    FrequencyDivisors(divisors=(1.0, 0.1, 3.0)),
    LongRopeScaling(
        short_divisors=(1.0, 1.1, 1.2),
        long_divisors=(1.0, 5.0, 1e-3),
        original_context=64,
        attention_factor=1.2,
        context=128,
    ),
]


def through_json(value: object) -> Any:
    return json.loads(json.dumps(to_plain(value)))


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: type(scaling).__name__)
def test_configs_come_back_equal(scaling: RopeScaling | None) -> None:
    rope = RopeConfig(base=12345.678, rotary_dim=6, scaling=scaling)
    config = replace(
        toy_config(num_layers=2),
        rope=rope,
        form=LayerForm(qk_norm=True, activation="gelu_tanh"),
        query_scale=0.1,
        attention=(LayerAttention(rope=None), LayerAttention(rope=rope, window=7)),
    )
    assert from_plain(ModelConfig, through_json(config)) == config


def test_generation_defaults_come_back_equal() -> None:
    for defaults in (GenerationDefaults(), GenerationDefaults(eos_token_ids=(3, 1), do_sample=True, temperature=0.6)):
        assert from_plain(GenerationDefaults, through_json(defaults)) == defaults


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("num_layers",), True, "ModelConfig.num_layers"),
        (("num_layers",), 2.0, "ModelConfig.num_layers"),
        (("norm_eps",), "1", "ModelConfig.norm_eps"),
        (("tie_embeddings",), 1, "ModelConfig.tie_embeddings"),
        (("query_scale",), "x", "ModelConfig.query_scale"),
        (("form", "activation"), "relu", "ModelConfig.form.activation"),
        (("form",), None, "ModelConfig.form"),
        (("rope", "scaling"), {"kind": "NoSuchScaling"}, "ModelConfig.rope.scaling"),
        (("rope", "kind"), "LayerForm", "ModelConfig.rope"),
        (("attention",), {}, "ModelConfig.attention"),
        (("attention",), [{}], r"ModelConfig.attention\[0\]"),
        (("more",), 1, "ModelConfig"),
    ],
)
def test_what_was_not_written_is_refused_by_name(path: tuple[str, ...], value: object, named: str) -> None:
    plain = through_json(toy_config())
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=f"^{named} is "):
        from_plain(ModelConfig, plain)


def test_missing_and_impossible_fields_are_refused() -> None:
    plain = through_json(toy_config())
    with pytest.raises(CorruptModelError, match="num_heads=0"):
        from_plain(ModelConfig, plain | {"num_heads": 0})
    del plain["num_heads"]
    with pytest.raises(ValueError, match="num_heads"):
        from_plain(ModelConfig, plain)
    with pytest.raises(ValueError, match="ModelConfig"):
        from_plain(ModelConfig, None)


def test_whole_numbers_stand_for_floats() -> None:
    plain = through_json(replace(toy_config(), query_scale=2.0, norm_eps=1.0)) | {"query_scale": 2, "norm_eps": 1}
    assert from_plain(ModelConfig, plain).query_scale == 2.0
    assert type(from_plain(ModelConfig, plain).norm_eps) is float
