"""Derive the peers' model files from the default model's GGUF, so that all of them compute with the same weights.

    python -m benchmarks.make_models --environments ~/.cache/offramp-peers

The Q4_1 file (its embedding is Q8_0) is the reference checkpoint. Its dequantized weights are written as F32, and
quantized again as Q8_0 and as Q4_0 (embedding Q8_0 there too, as the original has it); a Hugging Face folder holds
them in f32, and ONNX Runtime GenAI's own builder makes int4 from that folder in its own environment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchmarks.environment import DEFAULT_ENVIRONMENTS, env_python, model_path
from offramp.model.sources import resolve

DEFAULT_MODEL = "smollm2-135m"
EMBEDDING = "token_embd.weight"
SKIPPED_FIELDS = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")
TIMEOUT = 900  # seconds for the ONNX builder

Types = Callable[[str], gguf.GGMLQuantizationType]
Array = NDArray[np.float32]

QUANT = gguf.GGMLQuantizationType
GGUF_TYPES: dict[str, tuple[Types, gguf.LlamaFileType]] = {
    "F32": (lambda name: QUANT.F32, gguf.LlamaFileType.ALL_F32),
    "Q8_0": (lambda name: QUANT.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "Q4_0": (lambda name: QUANT.Q8_0 if name == EMBEDDING else QUANT.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}
"""Weights -> the type of each matrix (vectors stay f32), and what the file calls itself."""


def write_gguf(reader: gguf.GGUFReader, path: Path, types: Types, file_type: gguf.LlamaFileType) -> None:
    """The same metadata and tensors, with the matrices in other types."""
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, _text(reader, "general.architecture"))
    for name, field in reader.fields.items():
        if not name.startswith(SKIPPED_FIELDS):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(file_type)
    writer.add_quantization_version(2)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = types(tensor.name) if values.ndim > 1 else QUANT.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def write_hf_folder(reader: gguf.GGUFReader, folder: Path) -> None:
    """config.json, model.safetensors in f32 and tokenizer.json: what transformers, vLLM and the ONNX builder read."""
    folder.mkdir(parents=True, exist_ok=True)
    config = hf_config(reader)
    (folder / "generation_config.json").write_text(json.dumps({k: config[k] for k in ("bos_token_id", "eos_token_id")}))
    write_tokenizer(reader, folder)
    tensors = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    save_file(hf_tensors(tensors, config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))  # last: a folder with it is whole


def hf_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    """The Llama configuration in Hugging Face's words."""

    def number(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": number("embedding_length"),
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": number("rope.dimension_count"),
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base"),
        "vocab_size": number("vocab_size"),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
        "torch_dtype": "float32",
        "bos_token_id": reader.fields["tokenizer.ggml.bos_token_id"].contents(),
        "eos_token_id": reader.fields["tokenizer.ggml.eos_token_id"].contents(),
    }


LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_tensors(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """Renamed, and q and k back in the order of half-split rope."""
    renamed = {"model.embed_tokens.weight": tensors[EMBEDDING], "model.norm.weight": tensors["output_norm.weight"]}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for part, name in LAYER_NAMES.items():
            values = tensors[f"blk.{layer}.{part}.weight"]
            if part in heads:
                values = unpermute(values, heads[part])
            renamed[f"model.layers.{layer}.{name}.weight"] = np.ascontiguousarray(values)
    assert len(renamed) == len(tensors), "a tensor without a name"
    return renamed


def unpermute(values: Array, heads: int) -> Array:
    """GGUF pairs neighbouring rows of a head for rope; Hugging Face pairs its two halves. [outputs, inputs]"""
    outputs, inputs = values.shape
    return values.reshape(heads, outputs // heads // 2, 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)


def write_tokenizer(reader: gguf.GGUFReader, folder: Path) -> None:
    """The GGUF's byte-level BPE as tokenizer.json. Prompts are given as ids; the loaders want the file all the same."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = reader.fields["tokenizer.ggml.token_type"].contents()
    lines: list[str] = reader.fields["tokenizer.ggml.merges"].contents()
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))

    def token_of(name: str) -> str:
        index: int = reader.fields[f"tokenizer.ggml.{name}_token_id"].contents()
        return tokens[index]

    special = {f"{name}_token": token_of(name) for name in ("bos", "eos")} | {"pad_token": token_of("padding")}
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts, indent=2))


def build_onnx(environments: Path, hf_folder: Path, folder: Path) -> None:
    """int4 in blocks of 32 at accuracy level 4 (int8 activations), by ONNX Runtime GenAI's builder, offline."""
    command = [env_python(environments, "onnxruntime"), "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", hf_folder, "-o", folder, "-p", "int4", "-e", "cpu", "-c", folder.with_suffix(".cache")]
    command += ["--extra_options", "int4_accuracy_level=4", "int4_block_size=32"]
    subprocess.run(list(map(str, command)), check=True, timeout=TIMEOUT)


def _text(reader: gguf.GGUFReader, name: str) -> str:
    return str(reader.fields[name].contents())


def make_models(environments: Path, model: str) -> None:
    """All model files that are not there yet. Raises CalledProcessError or TimeoutExpired if the ONNX builder fails."""
    source = resolve(model)
    reader = gguf.GGUFReader(source)
    (environments / "models").mkdir(parents=True, exist_ok=True)
    link = model_path(environments, "Q4_1")
    link.unlink(missing_ok=True)
    link.symlink_to(source.resolve())
    for weights, (types, file_type) in GGUF_TYPES.items():
        path = model_path(environments, weights)
        if not path.exists():
            print(f"writing {path}", flush=True)
            write_gguf(reader, path, types, file_type)
    folder = model_path(environments, "f32 folder")
    if not (folder / "config.json").exists():
        print(f"writing {folder}", flush=True)
        write_hf_folder(reader, folder)
    onnx = model_path(environments, "int4")
    if env_python(environments, "onnxruntime").exists() and not (onnx / "genai_config.json").exists():
        print(f"building {onnx}", flush=True)
        build_onnx(environments, folder, onnx)


def main() -> None:
    parser = argparse.ArgumentParser(description="Derive the peers' model files from the default model's GGUF.")
    parser.add_argument("--environments", type=Path, default=DEFAULT_ENVIRONMENTS)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the Q4_1 GGUF file, or its short name")
    args = parser.parse_args()
    make_models(args.environments.expanduser().resolve(), args.model)


if __name__ == "__main__":
    main()
