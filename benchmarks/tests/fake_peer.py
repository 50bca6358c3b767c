"""A peer that needs no engine: takes a set time a token, and fails when asked to."""

from __future__ import annotations

import time

from benchmarks.workers.protocol import Json, generated, serve


class FakePeer:
    """Sleeps; the weights' name says how long, in milliseconds."""

    def load(self, model: str, weights: str, threads: int) -> Json:
        print("noise on standard output")
        if weights == "broken":
            raise RuntimeError("no such weights")
        self._seconds = int(weights) / 1000
        return {"version": "fake 1", "kv": "none", "threads": threads}

    def warm(self, case: Json) -> Json:
        return {}

    def run(self, case: Json) -> Json:
        stamps: list[list[float]] = [[] for _ in case["prompts"]]
        started = time.perf_counter()
        for _ in range(case["new_tokens"]):
            time.sleep(self._seconds)
            for stream in stamps:
                stream.append(time.perf_counter())
        tokens = [prompt[: case["new_tokens"]] for prompt in case["prompts"]]
        return generated(started, stamps, tokens, case["new_tokens"])


if __name__ == "__main__":
    serve(FakePeer())
