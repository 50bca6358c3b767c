"""A peer with prompt lookup that needs no engine: a token takes 20 ms, with drafts a fifth of it."""

from __future__ import annotations

import time

from benchmarks.workers.protocol import Json, answered, serve


class FakeLookup:
    """Repeats the prompt up to an end token."""

    def load(self, model: str, weights: str, threads: int) -> Json:
        return {"version": "fake 1", "flags": "none", "kv": "none", "threads": threads}

    def warm(self, case: Json) -> Json:
        return {}

    def run(self, case: Json) -> Json:
        assert case["context"] >= len(case["prompt"]) + case["new_tokens"]
        stamps: list[float] = []
        tokens: list[int] = []
        started = time.perf_counter()
        for token in case["prompt"][: case["new_tokens"]]:
            time.sleep(0.004 if case["lookup"] else 0.02)
            tokens.append(token)
            stamps.append(time.perf_counter())
            if token in case["eos"]:
                break
        return answered(started, stamps, tokens)


if __name__ == "__main__":
    serve(FakeLookup())
