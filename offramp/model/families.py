"""Model families as data: how their tensors are called in each file format, and the quirks of their files.

Names are written with `{i}` for the layer. Roles are those of `WeightSource` (tensors.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from offramp.errors import UnsupportedModelError
from offramp.model.config import PLAIN_FORM, LayerForm, ModelConfig
from offramp.model.tensors import all_roles

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Frequency divisors in GGUF files, read by config_gguf.py."""


UNROTATED_EVERY = 4
"""In families with layers without rope, each fourth is one."""

Windows = Literal["none", "all", "deep", "pattern", "unrotated"]
"""Which layers attend through a sliding window, where the checkpoint doesn't list them: none; all; those from
`max_window_layers` on; all but each n-th (`sliding_window_pattern`); those without rope.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family: role pattern -> tensor name for each format, what its layers are made of, and quirks of its files.

    Parts of a layer with the same tensor name are stacked in that tensor, in storage order.
    """

    name: str
    hf_architectures: tuple[str, ...]
    hf_model_type: str
    gguf_architectures: tuple[str, ...]
    hf_names: Mapping[str, str]
    gguf_names: Mapping[str, str]
    form: LayerForm = PLAIN_FORM
    scaled_embedding: bool = False  # embeddings are multiplied by sqrt(hidden_size)
    partial_rotary: bool = False  # config.json may let only a part of each head rotate
    windows: Windows = "none"
    optional_window: bool = False  # config.json's window counts only with `use_sliding_window`
    local_rope: bool = False  # layers with a window have a rope base of their own
    unrotated_layers: bool = False  # some layers lack rope, by UNROTATED_EVERY if config.json doesn't list them
    hf_activation: str = "hidden_act"  # the field that names the activation
    hf_defaults: Mapping[str, object] = field(default_factory=dict)  # of transformers, for fields left out
    hf_rope_types: Mapping[str, str] = field(default_factory=dict)  # other names that its configs use
    hf_norm_offset: float = 0.0  # what norm weights are stored without
    hf_ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)  # name endings of tensors that only repeat the config
    gguf_ignored: tuple[str, ...] = ROPE_TENSORS
    gguf_interleaved: tuple[str, ...] = ()  # parts whose GGUF rows pair neighbours (2j, 2j+1) for rope


HF_NAMES = {
    "embedding": "model.embed_tokens.weight",
    "layers.{i}.attn_norm": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.q_bias": "model.layers.{i}.self_attn.q_proj.bias",
    "layers.{i}.q_norm": "model.layers.{i}.self_attn.q_norm.weight",
    "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.k_bias": "model.layers.{i}.self_attn.k_proj.bias",
    "layers.{i}.k_norm": "model.layers.{i}.self_attn.k_norm.weight",
    "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.v_bias": "model.layers.{i}.self_attn.v_proj.bias",
    "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
    "layers.{i}.mlp_norm": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}
"""As most of transformers' models call them; a name counts only where the family's form has the part."""

GGUF_NAMES = {
    "embedding": "token_embd.weight",
    "layers.{i}.attn_norm": "blk.{i}.attn_norm.weight",
    "layers.{i}.q": "blk.{i}.attn_q.weight",
    "layers.{i}.q_bias": "blk.{i}.attn_q.bias",
    "layers.{i}.q_norm": "blk.{i}.attn_q_norm.weight",
    "layers.{i}.k": "blk.{i}.attn_k.weight",
    "layers.{i}.k_bias": "blk.{i}.attn_k.bias",
    "layers.{i}.k_norm": "blk.{i}.attn_k_norm.weight",
    "layers.{i}.v": "blk.{i}.attn_v.weight",
    "layers.{i}.v_bias": "blk.{i}.attn_v.bias",
    "layers.{i}.o": "blk.{i}.attn_output.weight",
    "layers.{i}.post_attn_norm": "blk.{i}.post_attention_norm.weight",
    "layers.{i}.mlp_norm": "blk.{i}.ffn_norm.weight",
    "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
    "layers.{i}.up": "blk.{i}.ffn_up.weight",
    "layers.{i}.down": "blk.{i}.ffn_down.weight",
    "layers.{i}.post_mlp_norm": "blk.{i}.post_ffw_norm.weight",
    "final_norm": "output_norm.weight",
    "lm_head": "output.weight",
}

QKV = ("q", "k", "v")

LLAMA = Family(
    name="llama",
    hf_architectures=("LlamaForCausalLM",),
    hf_model_type="llama",
    gguf_architectures=("llama",),
    hf_names=HF_NAMES,
    gguf_names=GGUF_NAMES,
    gguf_interleaved=("q", "k"),
)

QWEN2 = Family(
    name="qwen2",
    hf_architectures=("Qwen2ForCausalLM",),
    hf_model_type="qwen2",
    gguf_architectures=("qwen2",),
    hf_names=HF_NAMES,
    gguf_names=GGUF_NAMES,
    form=LayerForm(qkv_bias=True),
    windows="deep",
    optional_window=True,
    hf_defaults={"max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28},
)

QWEN3 = Family(
    name="qwen3",
    hf_architectures=("Qwen3ForCausalLM",),
    hf_model_type="qwen3",
    gguf_architectures=("qwen3",),
    hf_names=HF_NAMES,
    gguf_names=GGUF_NAMES,
    form=LayerForm(qk_norm=True),
    windows="deep",
    optional_window=True,
    hf_defaults={"head_dim": 128, "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28},
)

GEMMA3 = Family(
    name="gemma3",
    hf_architectures=("Gemma3ForCausalLM",),
    hf_model_type="gemma3_text",
    gguf_architectures=("gemma3",),
    hf_names={
        **HF_NAMES,
        "layers.{i}.post_attn_norm": "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.mlp_norm": "model.layers.{i}.pre_feedforward_layernorm.weight",
        "layers.{i}.post_mlp_norm": "model.layers.{i}.post_feedforward_layernorm.weight",
    },
    gguf_names=GGUF_NAMES,
    form=LayerForm(qk_norm=True, post_norms=True, activation="gelu_tanh"),
    scaled_embedding=True,
    windows="pattern",
    local_rope=True,
    hf_activation="hidden_activation",
    hf_defaults={
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    hf_norm_offset=1.0,
)

MISTRAL = Family(
    name="mistral",
    hf_architectures=("MistralForCausalLM",),
    hf_model_type="mistral",
    gguf_architectures=(),  # its GGUF files call themselves llama
    hf_names=HF_NAMES,
    gguf_names=GGUF_NAMES,
    windows="all",
    hf_defaults={"max_position_embeddings": 131072, "sliding_window": 4096},
    gguf_interleaved=("q", "k"),
)

SMOLLM3 = Family(
    name="smollm3",
    hf_architectures=("SmolLM3ForCausalLM",),
    hf_model_type="smollm3",
    gguf_architectures=("smollm3",),
    hf_names=HF_NAMES,
    gguf_names=GGUF_NAMES,
    windows="unrotated",
    optional_window=True,
    unrotated_layers=True,
    hf_defaults={"max_position_embeddings": 32768, "rope_theta": 2000000.0, "tie_word_embeddings": True},
    gguf_interleaved=("q", "k"),
)

PHI3 = Family(
    name="phi3",
    hf_architectures=("Phi3ForCausalLM",),
    hf_model_type="phi3",
    gguf_architectures=("phi3",),
    hf_names={
        **HF_NAMES,
        **dict.fromkeys(("layers.{i}.q", "layers.{i}.k", "layers.{i}.v"), "model.layers.{i}.self_attn.qkv_proj.weight"),
        **dict.fromkeys(("layers.{i}.gate", "layers.{i}.up"), "model.layers.{i}.mlp.gate_up_proj.weight"),
    },
    gguf_names={
        **GGUF_NAMES,
        **dict.fromkeys(("layers.{i}.q", "layers.{i}.k", "layers.{i}.v"), "blk.{i}.attn_qkv.weight"),
        **dict.fromkeys(("layers.{i}.gate", "layers.{i}.up"), "blk.{i}.ffn_up.weight"),
    },
    partial_rotary=True,
    windows="all",
    hf_defaults={"original_max_position_embeddings": 4096, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    hf_rope_types={"su": "longrope", "yarn": "longrope"},
)

FAMILIES = {family.name: family for family in (LLAMA, QWEN2, QWEN3, GEMMA3, MISTRAL, SMOLLM3, PHI3)}


def family_of_hf(architecture: str) -> Family:
    """The family of a Hugging Face `architectures` entry."""
    return _find(architecture, "architecture", {a: f for f in FAMILIES.values() for a in f.hf_architectures})


def family_of_model_type(model_type: str) -> Family:
    """The family of a Hugging Face `model_type`."""
    return _find(model_type, "model_type", {f.hf_model_type: f for f in FAMILIES.values()})


def family_of_gguf(architecture: str) -> Family:
    """The family of a GGUF `general.architecture`."""
    return _find(architecture, "general.architecture", {a: f for f in FAMILIES.values() for a in f.gguf_architectures})


def tensor_names(names: Mapping[str, str], config: ModelConfig) -> dict[str, str]:
    """Role -> tensor name for every role of the model."""
    return {role: tensor_name(names, role) for role in all_roles(config)}


def tensor_name(names: Mapping[str, str], role: str) -> str:
    """The tensor's name for a role such as `layers.3.q`."""
    if not role.startswith("layers."):
        return names[role]
    _, index, part = role.split(".")
    return names[f"layers.{{i}}.{part}"].replace("{i}", index)


def gguf_names(family: Family, present: Collection[str]) -> Mapping[str, str]:
    """The names in one file, which may have q, k and v stacked in one tensor or apart, whatever the family's usual."""
    apart = {f"layers.{{i}}.{part}": f"blk.{{i}}.attn_{part}.weight" for part in QKV}
    stack = dict.fromkeys(apart, "blk.{i}.attn_qkv.weight")
    bias = {f"{role}_bias": "blk.{i}.attn_qkv.bias" for role in apart}
    if tensor_name(stack, "layers.0.q") in present:
        return {**family.gguf_names, **stack, **bias}
    if tensor_name(apart, "layers.0.q") in present:
        return {**family.gguf_names, **apart}
    return family.gguf_names


def check_leftovers(present: Iterable[str], used: Iterable[str], ignored: tuple[str, ...]) -> None:
    """Refuse tensors that the family does not know: passing over a bias would change the answers silently."""
    unknown = sorted(name for name in set(present) - set(used) if not name.endswith(ignored))
    if unknown:
        shown = ", ".join(repr(name) for name in unknown[:3])
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise UnsupportedModelError(
            f"the checkpoint holds tensors that offramp has no use for: {shown}{more}",
            hint="the model is a variant of its architecture that offramp does not implement",
        )


def _find(architecture: str, field: str, known: Mapping[str, Family]) -> Family:
    if architecture not in known:
        raise UnsupportedModelError(
            f"{field} {architecture!r} is not supported", hint=f"supported: {', '.join(sorted(known))}"
        )
    return known[architecture]
