"""transformers as the oracle: builds reference models and takes their logits. Needs torch; no part of `make test`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from offramp.testing.checkpoints import hf_tensors, role_values
from offramp.testing.toy import DictSource

F32 = NDArray[np.float32]

HF_PARTS = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
HF_WHOLE = {"embedding": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "lm_head": "lm_head.weight"}
GGUF_PARTS = {
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
GGUF_WHOLE = {"embedding": "token_embd.weight", "final_norm": "output_norm.weight", "lm_head": "output.weight"}


MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3_text",
    "MistralForCausalLM": "mistral",
    "SmolLM3ForCausalLM": "smollm3",
    "Phi3ForCausalLM": "phi3",
}


def tiny_model(values: Mapping[str, Any], source: DictSource) -> PreTrainedModel:
    """The model that a `config.json` of these values describes, with a source's weights as a checkpoint holds them."""
    (architecture,) = values["architectures"]
    fields = deepcopy(dict(values))  # transformers completes nested ones in place
    config = AutoConfig.for_model(MODEL_TYPES[architecture], pad_token_id=None, **fields)
    return model_of(config, hf_tensors(source.config, role_values(source)))


def model_of(config: Any, weights: Mapping[str, F32]) -> PreTrainedModel:
    """An f32 model with exactly these weights, by Hugging Face name."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()}, strict=False)
    allowed = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(missing) <= allowed, missing
    assert not unexpected, unexpected
    model.tie_weights()
    return model.eval()


def logits(model: PreTrainedModel, tokens: list[int]) -> F32:
    """Logits after every token, [tokens, vocab]."""
    with torch.inference_mode():
        values = model(torch.tensor([tokens])).logits[0]
    return np.ascontiguousarray(values.numpy())


@dataclass(frozen=True, slots=True)
class RealModel:
    """A GGUF file run by transformers with f32 weights."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase  # built by transformers from the same file

    def encode(self, text: str) -> list[int]:
        """Ids of a text, special tokens parsed."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        assert isinstance(ids, list)
        return ids


def load_gemma(path: Path) -> RealModel:
    """Gemma 3 270M, read by transformers itself: config, weights and tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return RealModel(model.eval(), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name))


def load_default_model(path: Path) -> RealModel:
    """The default model: our reading of its config, weights dequantized by the gguf package."""
    reader = gguf.GGUFReader(path)
    config = _default_config(reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    names = {name: HF_WHOLE[role] for role, name in GGUF_WHOLE.items() if name in tensors}
    for layer in range(config.num_hidden_layers):
        for role, name in GGUF_PARTS.items():
            names[f"blk.{layer}.{name}.weight"] = f"model.layers.{layer}.{HF_PARTS[role]}.weight"
    assert names.keys() == tensors.keys()
    weights: dict[str, F32] = {}
    for name, hf in names.items():
        values = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float32)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
        weights[hf] = _half_split(values, heads) if heads else values
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return RealModel(model_of(config, weights), tokenizer)


def _half_split(values: F32, heads: int) -> F32:
    """Rows of interleaved rope pairs, as GGUF stores them, back to half-split order."""
    out, width = values.shape
    return np.ascontiguousarray(values.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width))


def _default_config(reader: gguf.GGUFReader) -> LlamaConfig:
    def value(key: str) -> int | float:
        return reader.get_field(f"llama.{key}").contents()  # type: ignore[union-attr, no-any-return]

    return LlamaConfig(
        vocab_size=value("vocab_size"),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=value("attention.head_count"),
        num_key_value_heads=value("attention.head_count_kv"),
        max_position_embeddings=value("context_length"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base")},
        tie_word_embeddings=not any(t.name == "output.weight" for t in reader.tensors),
    )
