"""llama.cpp, by its C interface alone: llama_decode and a greedy argmax, none of the Python class on top.

Flash attention is left at its default and also tried on and off, with several streams each with K/V memory in one
piece and in one piece a stream; `warm` keeps the fastest for a shape, and the replies name it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from itertools import product
from statistics import median

import llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from benchmarks.workers.protocol import Json, generated, serve

FLASH = {"default": -1, "on": 1, "off": 0}
MAX_BATCH = 4608  # tokens in one llama_decode; it cuts them into its own default pieces (n_ubatch)
TRIES = 3

Variant = tuple[str, bool]  # flash attention, one piece of K/V memory for all streams
Shape = tuple[str, int, int]  # kind of case, streams, tokens a stream
Place = tuple[int, int, int, bool]  # token, position, sequence, logits wanted


class LlamaPeer:
    """One model; a context for each shape of case, made outside of what is timed."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[Shape, Variant], Context] = {}
        self._chosen: dict[Shape, Variant] = {}
        self._model: ctypes.c_void_p | None = None
        self._threads = 0

    def load(self, model: str, weights: str, threads: int) -> Json:
        llama.llama_backend_init()
        self._model = llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp can't load {model}")
        self._threads = threads
        flags = llama.llama_print_system_info().decode().strip(" |\n")
        description = ctypes.create_string_buffer(256)
        llama.llama_model_desc(self._model, description, len(description))
        return {
            "version": f"llama-cpp-python {llama.__version__}",
            "flags": flags,
            "model": description.value.decode(),
            "model_bytes": llama.llama_model_size(self._model),
            "kv": "f16",
            "threads": threads,
        }

    def warm(self, case: Json) -> Json:
        """Run every variant a few times and keep the fastest, in turns so that none gets the quiet moments."""
        shape = shape_of(case)
        if shape in self._chosen:
            self._measure(case, self._chosen[shape])
            return {"variant": describe(self._chosen[shape])}
        pieces = (False, True) if shape[1] > 1 else (False,)
        variants: list[Variant] = list(product(FLASH, pieces))
        times: dict[Variant, list[float]] = {variant: [] for variant in variants}
        for _ in range(TRIES):
            for variant in variants:
                times[variant].append(cost(self._measure(case, variant)))
        self._chosen[shape] = best = min(variants, key=lambda variant: median(times[variant]))
        for variant in variants:
            if variant != best:
                self._contexts.pop((shape, variant)).close()
        tried = {describe(variant): round(median(seconds), 5) for variant, seconds in times.items()}
        return {"variant": describe(best), "tried": tried}

    def run(self, case: Json) -> Json:
        variant = self._chosen[shape_of(case)]
        return self._measure(case, variant) | {"variant": describe(variant)}

    def _measure(self, case: Json, variant: Variant) -> Json:
        shape = shape_of(case)
        context = self._contexts.get((shape, variant))
        if context is None:
            context = Context(self._model, shape[1], shape[2], variant, self._threads)
            self._contexts[shape, variant] = context
        context.clear()
        return time_rows(context, case) if case["kind"] == "rows" else time_generate(context, case)


class Context:
    """A llama_context and one batch to fill."""

    def __init__(
        self, model: ctypes.c_void_p | None, streams: int, tokens: int, variant: Variant, threads: int
    ) -> None:
        params = llama.llama_context_default_params()
        params.n_seq_max = streams
        params.n_ctx = streams * -(-tokens // 256) * 256
        params.n_batch = MAX_BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH[variant[0]]
        params.kv_unified = variant[1]
        self._context = llama.llama_init_from_model(model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context of {params.n_ctx} tokens, {describe(variant)}")
        self._memory = llama.llama_get_memory(self._context)
        self._batch = llama.llama_batch_init(MAX_BATCH, 0, streams)
        self._vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def clear(self) -> None:
        llama.llama_memory_clear(self._memory, False)

    def forget_from(self, position: int) -> None:
        llama.llama_memory_seq_rm(self._memory, 0, position, -1)

    def fill(self, places: list[Place]) -> None:
        """What the next `decode` runs."""
        batch = self._batch
        batch.n_tokens = len(places)
        for index, (token, position, sequence, wanted) in enumerate(places):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wanted

    def decode(self) -> None:
        """Run the batch to its end."""
        status = llama.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        llama.llama_synchronize(self._context)

    def logits(self, count: int) -> NDArray[np.float32]:
        """Of the tokens that wanted them, in order; valid until the next `decode`. [count, vocab]"""
        return np.ctypeslib.as_array(llama.llama_get_logits(self._context), shape=(count, self._vocab))

    def close(self) -> None:
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._context)


def time_generate(context: Context, case: Json) -> Json:
    prompts, new_tokens = case["prompts"], case["new_tokens"]
    stamps: list[list[float]] = [[] for _ in prompts]
    tokens: list[list[int]] = [[] for _ in prompts]
    context.fill(list(prompt_places(prompts)))  # Python's loop over the prompt is not llama.cpp's time
    started = time.perf_counter()
    for step in range(new_tokens):
        if step:
            at = step - 1
            context.fill([(tokens[s][at], len(p) + at, s, True) for s, p in enumerate(prompts)])
        context.decode()
        best = context.logits(len(prompts)).argmax(axis=1)
        now = time.perf_counter()
        for stream, token in enumerate(best.tolist()):
            tokens[stream].append(token)
            stamps[stream].append(now)
    return generated(started, stamps, tokens, new_tokens)


def time_rows(context: Context, case: Json) -> Json:
    prompt, count = case["prompt"], case["rows"]
    context.fill(list(prompt_places([prompt])))
    context.decode()
    seconds: list[float] = []
    for _ in range(case["repeats"]):
        context.fill([(token, len(prompt) + index, 0, True) for index, token in enumerate(prompt[:count])])
        started = time.perf_counter()
        context.decode()
        context.logits(count)
        seconds.append(time.perf_counter() - started)
        context.forget_from(len(prompt))
    return {"seconds": seconds}


def prompt_places(prompts: list[list[int]]) -> Iterator[Place]:
    """All prompts in one batch, logits for the last token of each."""
    for sequence, prompt in enumerate(prompts):
        for position, token in enumerate(prompt):
            yield token, position, sequence, position == len(prompt) - 1


def shape_of(case: Json) -> Shape:
    if case["kind"] == "rows":
        return f"rows {case['rows']}", 1, len(case["prompt"]) + case["rows"]
    longest = max(map(len, case["prompts"])) + case["new_tokens"]
    return "generate", len(case["prompts"]), longest


def cost(reply: Json) -> float:
    """Seconds of what the case is about: decoding if it decodes, else the prompt."""
    if "seconds" in reply:
        return float(median(reply["seconds"]))
    return float(reply["total"] - reply["first"]) if reply["decoded"] else float(reply["first"])


def describe(variant: Variant) -> str:
    return f"flash attention {variant[0]}" + (", one K/V memory for all streams" if variant[1] else "")


if __name__ == "__main__":
    serve(LlamaPeer())
