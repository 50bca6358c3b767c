"""Tiny models of every family as GGUF files, and what llama.cpp answers from them: recorded, for tests without it.

python -m tests.oracle.gguf_cases write FOLDER      (with offramp: the files)
python -m tests.oracle.gguf_cases record FOLDER     (with llama-cpp-python: its logits of each file)
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from offramp.model.config import ModelConfig, RopeScaling

RECORDED = Path(__file__).parent / "recorded" / "gguf-families.npz"
SEED = 7
TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 260, size=90)]
POSITIONS = (0, 31, 32, 60, 89)


def cases() -> dict[str, ModelConfig]:
    """By name: each family, and each scaling that the files of some family may have."""
    from dataclasses import replace

    from offramp.model.config import LinearScaling, LongRopeScaling, RopeConfig, YarnScaling
    from offramp.model.rope import default_yarn_attention
    from offramp.testing.families import family_config

    def plain(name: str, window: int | None = None) -> ModelConfig:
        return family_config(name, window=window, vocab_size=len(_tokens()))

    yarn = YarnScaling(factor=4.0, original_context=32, attention_factor=default_yarn_attention(4.0))
    longrope = LongRopeScaling(
        short_divisors=(1.0, 1.1, 1.2, 1.3, 1.4, 1.5),
        long_divisors=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        original_context=64,
        attention_factor=1.19,
        context=512,
    )
    phi3 = replace(plain("phi3"), rope=RopeConfig(rotary_dim=12, scaling=longrope))
    return {
        **{name: plain(name) for name in ("llama", "qwen2", "qwen3", "gemma3", "smollm3", "phi3")},
        "gemma3-window": plain("gemma3", 24),
        "gemma3-linear": _scaled(plain("gemma3", 24), LinearScaling(factor=4.0)),
        "llama-linear": _scaled(plain("llama"), LinearScaling(factor=4.0)),
        "llama-llama3": _scaled(plain("llama"), _llama3()),
        **{f"{name}-yarn": _scaled(plain(name), yarn) for name in ("llama", "qwen2", "qwen3")},
        "phi3-longrope": phi3,
    }


def _tokens() -> list[str]:
    tokens: Any = _metadata()["tokenizer.ggml.tokens"]
    return list(tokens)


def _metadata() -> dict[str, Any]:
    from offramp.testing.models import tokenizer_metadata

    return dict(tokenizer_metadata())


def _llama3() -> RopeScaling:
    from offramp.model.config import Llama3Scaling

    return Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32)


def _scaled(config: ModelConfig, scaling: RopeScaling) -> ModelConfig:
    """The same with its main rotation scaled; local rotations stay plain."""
    from dataclasses import replace

    rope = replace(config.rope, scaling=scaling)
    layers = tuple(replace(a, rope=rope if a.rope == config.rope else a.rope) for a in config.attention)
    return replace(config, rope=rope, attention=layers)


def write(folder: Path, *names: str) -> None:
    """The files of these cases, or of all."""
    from offramp.testing.checkpoints import role_values, write_gguf
    from offramp.testing.toy import toy_source

    for name, config in cases().items():
        if not names or name in names:
            write_gguf(folder / f"{name}.gguf", config, role_values(toy_source(config, SEED)), metadata=_metadata())


def record(folder: Path) -> None:
    llama_cpp = import_module("llama_cpp")  # from an environment of its own
    arrays = {}
    for path in sorted(folder.glob("*.gguf")):
        exact = {"type_k": 0, "type_v": 0, "flash_attn": False}  # f32
        model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, logits_all=True, verbose=False, n_threads=1, **exact)
        model.eval(TOKENS)
        arrays[path.stem] = np.array(model.scores[list(POSITIONS)], np.float32)
    np.savez_compressed(RECORDED, **arrays)


if __name__ == "__main__":
    {"write": write, "record": record}[sys.argv[1]](Path(sys.argv[2]))
