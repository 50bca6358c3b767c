"""Records what transformers answers, for the tests that run without torch.

python tests/oracle/record.py tiny [name ...]
python tests/oracle/record.py default path/to/SmolLM2-135M-Instruct.Q4_1.gguf
python tests/oracle/record.py gemma path/to/gemma-3-270m-q4_k_m.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from reference import RealModel, load_default_model, load_gemma, logits, tiny_model
from texts import GEMMA_PROMPTS, LOGIT_PROMPTS, PERPLEXITY_TEXT, PROMPTS
from tiny import OVERRIDES, POSITIONS, config_values, seed_of, tokens_of

from offramp.model.config_hf import config_from_hf
from offramp.model.metadata import Fields
from offramp.testing.toy import toy_source

RECORDED = Path(__file__).parent / "recorded"
Arrays = dict[str, NDArray[Any]]

NUM_GREEDY = 64
NUM_BEST = 64
STRIDE = 97
"""Every 97th id is recorded besides the best 64."""
GEMMA_STRIDE = 997
"""Of its 262,144 ids."""
NUM_LOGIT_POSITIONS = 4


def tiny(name: str) -> Arrays:
    """Reference logits of one tiny config; its weights come from the seed, so they need not be stored."""
    values = config_values(name)
    source = toy_source(config_from_hf(Fields(values, name)), seed_of(name))
    reference = logits(tiny_model(values, source), tokens_of(name))
    return {
        "config": np.array(json.dumps(values)),
        "weights_sha256": np.array(source.sha256()),
        "seed": np.array(seed_of(name)),
        "tokens": np.array(tokens_of(name), np.int32),
        "positions": POSITIONS,
        "logits": reference[POSITIONS],
    }


def default(oracle: RealModel) -> Arrays:
    """Logits at some positions, greedy continuations with their top-2 gaps, and one perplexity."""
    arrays: Arrays = {}
    for i, prompt in enumerate(PROMPTS):
        tokens = oracle.encode(prompt)
        continuation, gaps = greedy(oracle, tokens)
        arrays |= {f"prompt{i}.text": np.array(prompt), f"prompt{i}.tokens": np.array(tokens, np.int32)}
        arrays |= {f"prompt{i}.greedy": continuation, f"prompt{i}.gaps": gaps}
        if i in LOGIT_PROMPTS:
            arrays |= {f"prompt{i}.{key}": value for key, value in some_logits(oracle, tokens).items()}
    tokens = oracle.encode(PERPLEXITY_TEXT)
    arrays["text.text"] = np.array(PERPLEXITY_TEXT)
    arrays["text.tokens"] = np.array(tokens, np.int32)
    arrays["text.perplexity"] = np.array(perplexity(oracle, tokens))
    return arrays


def gemma(oracle: RealModel) -> Arrays:
    """Logits at some positions of a few prompts, one of them longer than the window."""
    arrays: Arrays = {}
    for i, prompt in enumerate(GEMMA_PROMPTS):
        tokens = [oracle.tokenizer.bos_token_id, *oracle.encode(prompt)]
        arrays |= {f"prompt{i}.text": np.array(prompt), f"prompt{i}.tokens": np.array(tokens, np.int32)}
        for key, value in some_logits(oracle, tokens, stride=GEMMA_STRIDE).items():
            arrays[f"prompt{i}.{key}"] = value
    return arrays


def greedy(oracle: RealModel, tokens: list[int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """64 argmax tokens, past any end token, and at each step by how much the best logit beat the second."""
    chosen, gaps, cache = [], [], None
    pending = torch.tensor([tokens])
    with torch.inference_mode():
        for _ in range(NUM_GREEDY):
            out = oracle.model(pending, cache=cache, use_cache=True)
            cache, best = out.cache, out.logits[0, -1].topk(2)
            chosen.append(int(best.indices[0]))
            gaps.append(float(best.values[0] - best.values[1]))
            pending = torch.tensor([[chosen[-1]]])
    return np.array(chosen, np.int32), np.array(gaps, np.float32)


def some_logits(oracle: RealModel, tokens: list[int], stride: int = STRIDE) -> Arrays:
    """The best 64 ids and every so many-th id at a few positions, the first and the last among them."""
    positions = np.unique(np.linspace(0, len(tokens) - 1, NUM_LOGIT_POSITIONS).astype(np.int32))
    rows = logits(oracle.model, tokens)[positions]
    best = np.argsort(-rows, axis=1, kind="stable")[:, :NUM_BEST].astype(np.int32)
    return {
        "positions": positions,
        "best_ids": best,
        "best_logits": np.take_along_axis(rows, best, axis=1),
        "strided_logits": np.ascontiguousarray(rows[:, ::stride]),
    }


def perplexity(oracle: RealModel, tokens: list[int]) -> float:
    """exp of the mean negative log-likelihood of every token but the first."""
    log_probs = torch.log_softmax(torch.from_numpy(logits(oracle.model, tokens)).double(), dim=1)
    picked = log_probs[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
    return float(torch.exp(-picked.mean()))


def save(name: str, arrays: Arrays) -> None:
    path = RECORDED / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    print(f"{path}: {path.stat().st_size} bytes")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["tiny", *names]:
            for name in names or OVERRIDES:
                save(f"tiny-{name}", tiny(name))
        case ["default", path]:
            save("default-model", default(load_default_model(Path(path))))
        case ["gemma", path]:
            save("gemma3-270m", gemma(load_gemma(Path(path))))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
