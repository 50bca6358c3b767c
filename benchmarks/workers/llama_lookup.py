"""llama.cpp through llama-cpp-python's own class: plain, and with its LlamaPromptLookupDecoding.

Both keep the class's defaults, but for `logits_all`, without which it can't draft after prompts of over 512 tokens; so
drafting makes it copy the logits of every token, prompts included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from benchmarks.workers.protocol import Json, answered, serve


class LlamaLookupPeer:
    """One model twice, without and with a drafter, each made when first asked for."""

    def __init__(self) -> None:
        self._model = ""
        self._threads = 0
        self._drafter = LlamaPromptLookupDecoding()
        self._made: dict[bool, llama_cpp.Llama] = {}

    def load(self, model: str, weights: str, threads: int) -> Json:
        self._model, self._threads = model, threads
        version = f"llama-cpp-python {llama_cpp.__version__}"
        return {"version": version, "flags": "its class at its defaults", "kv": "f16", "threads": threads}

    def warm(self, case: Json) -> Json:
        self.run(case | {"new_tokens": min(8, case["new_tokens"])})
        return {}

    def run(self, case: Json) -> Json:
        llama = self._llama(drafts=case["lookup"] > 0, context=case["context"])
        self._drafter.num_pred_tokens = case["lookup"]
        llama.reset()  # forget the prompt before, which it would reuse
        started = time.perf_counter()
        stamps, tokens = generate(llama, case["prompt"], case["new_tokens"], case["eos"])
        return answered(started, stamps, tokens)

    def _llama(self, *, drafts: bool, context: int) -> llama_cpp.Llama:
        if drafts not in self._made:
            self._made[drafts] = llama_cpp.Llama(
                self._model,
                n_ctx=context,
                n_threads=self._threads,
                n_threads_batch=self._threads,
                draft_model=self._drafter if drafts else None,
                logits_all=drafts,
                verbose=False,
            )
        return self._made[drafts]


def generate(
    llama: llama_cpp.Llama, prompt: list[int], new_tokens: int, eos: Sequence[int]
) -> tuple[list[float], list[int]]:
    """Greedy, up to an end token; when each token came, and its id."""
    stamps: list[float] = []
    tokens: list[int] = []
    for token in llama.generate(prompt, temp=0.0):
        tokens.append(int(token))
        stamps.append(time.perf_counter())
        if len(tokens) == new_tokens or token in eos:
            break
    return stamps, tokens


if __name__ == "__main__":
    serve(LlamaLookupPeer())
