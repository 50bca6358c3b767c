"""ONNX Runtime GenAI over the folder that its model builder made."""

from __future__ import annotations

import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai

from benchmarks.workers.protocol import Json, generated, serve


class OnnxruntimePeer:
    """One model; all prompts of a call have equal lengths."""

    def __init__(self) -> None:
        self._model: Any = None

    def load(self, model: str, weights: str, threads: int) -> Json:
        self._set_threads(Path(model), threads)
        self._model = genai.Model(model)
        return {"version": f"ONNX Runtime GenAI {version('onnxruntime-genai')}", "kv": "f32", "threads": threads}

    def warm(self, case: Json) -> Json:
        self.run(case)
        return {}

    def run(self, case: Json) -> Json:
        prompts = case["prompts"]
        params = genai.GeneratorParams(self._model)
        length = len(prompts[0]) + case["new_tokens"]
        params.set_search_options(
            do_sample=False,
            max_length=length,
            min_length=length,  # as long: end tokens are ignored
            batch_size=len(prompts),
            past_present_share_buffer=True,
        )
        generator = genai.Generator(self._model, params)
        stamps: list[list[float]] = [[] for _ in prompts]
        tokens: list[list[int]] = [[] for _ in prompts]
        started = time.perf_counter()
        generator.append_tokens(np.array(prompts, dtype=np.int32))
        for _ in range(case["new_tokens"]):
            generator.generate_next_token()
            best = generator.get_next_tokens()
            now = time.perf_counter()
            for stream, token in enumerate(best):
                tokens[stream].append(int(token))
                stamps[stream].append(now)
        return generated(started, stamps, tokens, case["new_tokens"])

    @staticmethod
    def _set_threads(folder: Path, threads: int) -> None:
        """The number of threads is read from the model's own configuration file."""
        path = folder / "genai_config.json"
        config = json.loads(path.read_text())
        config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
        path.write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    serve(OnnxruntimePeer())
