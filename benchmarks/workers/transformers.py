"""transformers on torch: the model's own forward pass and K/V cache in a plain greedy loop (faster than `generate`)."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers

from benchmarks.workers.protocol import Json, generated, serve


class TransformersPeer:
    """One model in f32. Prompts of one call have equal lengths, so nothing is padded."""

    def __init__(self) -> None:
        self._model: Any = None

    def load(self, model: str, weights: str, threads: int) -> Json:
        torch.set_num_threads(threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        return {
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "flags": f"{torch.backends.cpu.get_cpu_capability()}, attention {self._model.config._attn_implementation}",
            "kv": "f32",
            "threads": torch.get_num_threads(),
        }

    def warm(self, case: Json) -> Json:
        self.run(case)
        return {}

    def run(self, case: Json) -> Json:
        ids = torch.tensor(case["prompts"])
        stamps: list[list[float]] = [[] for _ in case["prompts"]]
        tokens: list[list[int]] = [[] for _ in case["prompts"]]
        with torch.inference_mode():
            started = time.perf_counter()
            cache = None
            for _ in range(case["new_tokens"]):
                out = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache = out.past_key_values
                ids = out.logits[:, -1].argmax(dim=-1, keepdim=True)
                best = ids[:, 0].tolist()
                now = time.perf_counter()
                for stream, token in enumerate(best):
                    tokens[stream].append(token)
                    stamps[stream].append(now)
        return generated(started, stamps, tokens, case["new_tokens"])


if __name__ == "__main__":
    serve(TransformersPeer())
