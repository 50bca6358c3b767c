"""offramp itself: the engine that its front doors share, with prefix caching off; "rows" calls the executor."""

from __future__ import annotations

import time
from importlib.metadata import version

import numpy as np

from benchmarks.workers.protocol import Json, generated, serve
from offramp.core import PAGE_SIZE, Request, Rows, SamplingParams
from offramp.engine.engine import Engine
from offramp.llm.loading import LoadedModel, load_model
from offramp.model.config import ModelConfig
from offramp.native import NativeExecutor
from offramp.native.sampling import sample_rows

MAX_STREAMS = 16


class OfframpPeer:
    """One model with one engine over it."""

    def __init__(self) -> None:
        self._loaded: LoadedModel | None = None
        self._engine: Engine | None = None

    def load(self, model: str, weights: str, threads: int) -> Json:
        self._loaded = loaded = load_model(model, weights=weights, threads=threads, max_num_seqs=MAX_STREAMS)
        self._engine = Engine(
            loaded.executor,
            max_context=loaded.max_context,
            max_num_seqs=MAX_STREAMS,
            sample_rows=sample_rows,
            prefix_cache=False,
        )
        executor = loaded.executor
        assert isinstance(executor, NativeExecutor)
        facts: Json = {"version": version("offramp"), "kernels": executor.path}
        facts |= {"threads": executor.threads, "kv": executor.kv}
        if weights == "q8":
            facts["weight_bytes"] = q8_bytes(loaded.config)
        return facts

    def warm(self, case: Json) -> Json:
        self.run(case)
        return {}

    def run(self, case: Json) -> Json:
        return self._rows(case) if case["kind"] == "rows" else self._generate(case)

    def _generate(self, case: Json) -> Json:
        engine = self._engine
        assert engine is not None
        params = SamplingParams(temperature=0, max_tokens=case["new_tokens"], ignore_eos=True)
        stamps: list[list[float]] = [[] for _ in case["prompts"]]
        tokens: list[list[int]] = [[] for _ in case["prompts"]]
        started = time.perf_counter()
        for index, prompt in enumerate(case["prompts"]):
            engine.add_request(Request(request_id=str(index), prompt_token_ids=prompt, params=params, seed=0))
        while engine.has_work:
            events = engine.step()
            now = time.perf_counter()
            for event in events:
                if event.error is not None:
                    raise event.error
                stamps[int(event.request_id)] += [now] * len(event.token_ids)
                tokens[int(event.request_id)] += event.token_ids
        return generated(started, stamps, tokens, case["new_tokens"])

    def _rows(self, case: Json) -> Json:
        assert self._loaded is not None
        executor, num_layers = self._loaded.executor, self._loaded.config.num_layers
        prompt, count = case["prompt"], case["rows"]
        before = chain(prompt, 0, len(prompt) + count)
        executor.run_layers(executor.embed(before), before, 0, num_layers)
        rows = chain(prompt[:count], len(prompt), len(prompt) + count)
        seconds: list[float] = []
        for _ in range(case["repeats"]):
            started = time.perf_counter()
            executor.logits(executor.run_layers(executor.embed(rows), rows, 0, num_layers))
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds}


def chain(tokens: list[int], start: int, total: int) -> Rows:
    """Tokens of one sequence from position `start` on, in the first pages, which hold `total` positions."""
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    num_pages = -(-total // PAGE_SIZE)
    return Rows(
        tokens=np.array(tokens, np.int32),
        sequence=np.zeros(len(tokens), np.int32),
        positions=positions,
        slots=positions,
        prefix_lens=positions,
        ancestor_slots=np.empty(0, np.int32),
        ancestor_starts=np.zeros(len(tokens) + 1, np.int32),
        page_ids=np.arange(num_pages, dtype=np.int32),
        page_starts=np.array([0, num_pages], np.int32),
    )


def q8_bytes(config: ModelConfig) -> int:
    """Bytes of the q8 matrices that one step reads: all layers and the head; 34 bytes for 32 values."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
    return (config.num_layers * layer + config.vocab_size * hidden) * 34 // 32


if __name__ == "__main__":
    serve(OfframpPeer())
