"""OpenVINO GenAI, which reads the GGUF file itself."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai

from benchmarks.workers.protocol import Json, generated, serve


class Stamps(openvino_genai.StreamerBase):  # type: ignore[misc]
    """Notes when each token comes."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, token: int | list[int]) -> Any:
        self.times += [time.perf_counter()] * (len(token) if isinstance(token, list) else 1)
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


class OpenvinoPeer:
    """One pipeline; one stream at a time."""

    def __init__(self) -> None:
        self._pipe: Any = None

    def load(self, model: str, weights: str, threads: int) -> Json:
        self._pipe = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
        return {
            "version": f"OpenVINO GenAI {version('openvino-genai')}",
            "flags": openvino.get_version(),
            "kv": "default",
            "threads": threads,
        }

    def warm(self, case: Json) -> Json:
        self.run(case)
        return {}

    def run(self, case: Json) -> Json:
        if len(case["prompts"]) != 1:
            raise ValueError("this worker runs one stream")
        ids = np.array(case["prompts"], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        config = openvino_genai.GenerationConfig(
            max_new_tokens=case["new_tokens"], ignore_eos=True, do_sample=False, apply_chat_template=False
        )
        stamps = Stamps()
        started = time.perf_counter()
        result = self._pipe.generate(inputs, config, stamps)
        return generated(started, [stamps.times], [list(result.tokens[0])], case["new_tokens"])


if __name__ == "__main__":
    serve(OpenvinoPeer())
