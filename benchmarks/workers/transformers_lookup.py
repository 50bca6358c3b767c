"""transformers' `generate`: plain, and with `prompt_lookup_num_tokens`; everything else at its defaults."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers

from benchmarks.workers.protocol import Json, answered, serve


class Clock:
    """A streamer that notes when tokens come; the first call brings the prompt."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.tokens: list[int] = []
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        ids = value.reshape(-1).tolist()
        self.tokens += ids
        self.stamps += [time.perf_counter()] * len(ids)

    def end(self) -> None:
        pass


class TransformersLookupPeer:
    """One model in f32."""

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
        self.run(case | {"new_tokens": min(8, case["new_tokens"])})
        return {}

    def run(self, case: Json) -> Json:
        ids = torch.tensor([case["prompt"]])
        clock = Clock()
        options = {"prompt_lookup_num_tokens": case["lookup"]} if case["lookup"] else {}
        started = time.perf_counter()
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=case["new_tokens"],
            eos_token_id=case["eos"],
            pad_token_id=case["eos"][0],
            streamer=clock,
            **options,
        )
        return answered(started, clock.stamps, clock.tokens)


if __name__ == "__main__":
    serve(TransformersLookupPeer())
