"""Where a peer's environment and model files are."""

from __future__ import annotations

from pathlib import Path

DEFAULT_ENVIRONMENTS = Path("~/.cache/offramp-peers").expanduser()
PEERS = ("llama", "transformers", "openvino", "onnxruntime", "vllm")
"""Names of environments, of their requirement files and of their workers."""

_MODELS = {
    "Q4_1": "q4_1.gguf",
    "Q4_0": "q4_0.gguf",
    "Q8_0": "q8_0.gguf",
    "F32": "f32.gguf",
    "f32 folder": "hf-f32",
    "int4": "onnx-int4",
}


def env_python(environments: Path, peer: str) -> Path:
    """The interpreter of a peer's environment, which may not exist."""
    return environments / peer / "bin" / "python"


def model_path(environments: Path, weights: str) -> Path:
    """The file or folder with these weights, which may not exist."""
    return environments / "models" / _MODELS[weights]
