"""Model families as data: how their tensors are called in each file format, and the quirks of their files.

Names are written with `{i}` for the layer. Roles are those of `WeightSource` (tensors.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from offramp.errors import UnsupportedModelError
from offramp.model.config import ModelConfig
from offramp.model.tensors import all_roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family: role pattern -> tensor name for each format, and which tensors may be passed over."""

    name: str
    hf_architectures: tuple[str, ...]
    gguf_architectures: tuple[str, ...]
    hf_names: Mapping[str, str]
    gguf_names: Mapping[str, str]
    hf_ignored: tuple[str, ...] = ()  # name endings of tensors that only repeat the config
    gguf_ignored: tuple[str, ...] = ()
    gguf_interleaved: tuple[str, ...] = ()  # parts whose GGUF rows pair neighbours (2j, 2j+1) for rope


LLAMA = Family(
    name="llama",
    hf_architectures=("LlamaForCausalLM",),
    gguf_architectures=("llama",),
    hf_names={
        "embedding": "model.embed_tokens.weight",
        "layers.{i}.attn_norm": "model.layers.{i}.input_layernorm.weight",
        "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
        "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
        "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
        "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
        "layers.{i}.mlp_norm": "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
        "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
        "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
    },
    gguf_names={
        "embedding": "token_embd.weight",
        "layers.{i}.attn_norm": "blk.{i}.attn_norm.weight",
        "layers.{i}.q": "blk.{i}.attn_q.weight",
        "layers.{i}.k": "blk.{i}.attn_k.weight",
        "layers.{i}.v": "blk.{i}.attn_v.weight",
        "layers.{i}.o": "blk.{i}.attn_output.weight",
        "layers.{i}.mlp_norm": "blk.{i}.ffn_norm.weight",
        "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
        "layers.{i}.up": "blk.{i}.ffn_up.weight",
        "layers.{i}.down": "blk.{i}.ffn_down.weight",
        "final_norm": "output_norm.weight",
        "lm_head": "output.weight",
    },
    hf_ignored=(".rotary_emb.inv_freq",),
    gguf_ignored=("rope_freqs.weight",),  # read by config_gguf.py
    gguf_interleaved=("q", "k"),
)

FAMILIES = {family.name: family for family in (LLAMA,)}


def family_of_hf(architecture: str) -> Family:
    """The family of a Hugging Face `architectures` entry."""
    return _find(architecture, "architecture", {a: f for f in FAMILIES.values() for a in f.hf_architectures})


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
