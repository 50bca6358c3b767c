"""transformers' `generate`: plain, and with `prompt_lookup_num_tokens`; everything else at its defaults."""

from __future__ import annotations

import time

import torch

from benchmarks.workers.protocol import Json, answered, serve
from benchmarks.workers.transformers import TransformersPeer


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


class TransformersLookupPeer(TransformersPeer):
    """The same model, one prompt at a time through `generate`."""

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
