"""vLLM on CPU in f32: its engine stepped in this process, prefix caching off."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from benchmarks.workers.protocol import Json, generated, serve

MAX_CONTEXT = 4608


class VllmPeer:
    """One engine."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._params: Any = None
        self._numbers = itertools.count()

    def load(self, model: str, weights: str, threads: int) -> Json:
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
        os.environ.pop("OMP_NUM_THREADS", None)  # vLLM sets it from the binding, and is a little faster so
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": cpus,
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_NO_USAGE_STATS": "1",
        }
        import torch
        import vllm

        self._params = vllm.SamplingParams
        self._engine = vllm.LLM(
            model=model,
            dtype="float32",
            max_model_len=MAX_CONTEXT,
            max_num_seqs=16,
            enable_prefix_caching=False,
            disable_log_stats=True,
        ).llm_engine
        versions = f"vLLM {vllm.__version__}, torch {torch.__version__}"
        flags = f"{torch.backends.cpu.get_cpu_capability()}, bound to {cpus}"
        return {"version": versions, "flags": flags, "kv": "f32", "threads": threads}

    def warm(self, case: Json) -> Json:
        self.run(case)
        return {}

    def run(self, case: Json) -> Json:
        params = self._params(temperature=0, max_tokens=case["new_tokens"], ignore_eos=True, detokenize=False)
        names = {f"{next(self._numbers)}": index for index in range(len(case["prompts"]))}
        stamps: list[list[float]] = [[] for _ in names]
        tokens: list[list[int]] = [[] for _ in names]
        started = time.perf_counter()
        for name, prompt in zip(names, case["prompts"], strict=True):
            self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter()
            for output in outputs:
                stream = names[output.request_id]
                ids = list(output.outputs[0].token_ids)
                stamps[stream] += [now] * (len(ids) - len(stamps[stream]))
                tokens[stream] = ids
        return generated(started, stamps, tokens, case["new_tokens"])


if __name__ == "__main__":
    serve(VllmPeer())
