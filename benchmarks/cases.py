"""What is measured, who is compared with whom, and the targets."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.worker import Entrant

Kind = Literal["generate", "rows"]
Metric = Literal["decode", "prefill", "row"]

FIRST_ID, LAST_ID = 1000, 40_000
"""Prompts are ids drawn from here by a fixed seed: no special tokens, in every tokenizer the same number of tokens."""

OFFRAMP_Q8, OFFRAMP_Q4, OFFRAMP_F32 = (Entrant("offramp", weights) for weights in ("q8", "auto", "f32"))
LLAMA_Q8_0, LLAMA_Q4_1, LLAMA_Q4_0, LLAMA_F32 = (Entrant("llama", w) for w in ("Q8_0", "Q4_1", "Q4_0", "F32"))
TRANSFORMERS, VLLM = Entrant("transformers", "F32"), Entrant("vllm", "F32")
OPENVINO, ONNXRUNTIME = Entrant("openvino", "Q4_1"), Entrant("onnxruntime", "int4")

MODELS = {
    OFFRAMP_Q8: "Q4_1",
    OFFRAMP_Q4: "Q4_1",
    OFFRAMP_F32: "Q4_1",
    LLAMA_Q8_0: "Q8_0",
    LLAMA_Q4_1: "Q4_1",
    LLAMA_Q4_0: "Q4_0",
    LLAMA_F32: "F32",
    TRANSFORMERS: "f32 folder",
    VLLM: "f32 folder",
    OPENVINO: "Q4_1",
    ONNXRUNTIME: "int4",
}
"""The model file of each entrant (a name of `environment.model_path`)."""


@dataclass(frozen=True, slots=True)
class Versus:
    """offramp against one peer: the ratio of their speeds (above 1: offramp is faster), and what it should be."""

    ours: Entrant
    theirs: Entrant
    target: float = 1.0
    stretch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure, for all entrants in turn."""

    name: str
    title: str
    kind: Kind = "generate"
    metric: Metric
    streams: int = 1
    prompt_len: int
    new_tokens: int = 1
    rows: int = 1
    repeats: int = 15  # calls of a "rows" run; its time is their median
    versus: tuple[Versus, ...]

    @property
    def entrants(self) -> list[Entrant]:
        """Each once, in the order of the table."""
        return list(dict.fromkeys(entrant for pair in self.versus for entrant in (pair.ours, pair.theirs)))

    def request(self, round_number: int) -> dict[str, Any]:
        """As workers take it. New prompts each round, the same for all entrants, so that no cache helps anyone."""
        draw = random.Random(f"{self.name}/{round_number}")
        prompts = [
            [draw.randrange(FIRST_ID, LAST_ID) for _ in range(self.prompt_len)] for _ in range(max(1, self.streams))
        ]
        if self.kind == "rows":
            return {"kind": "rows", "prompt": prompts[0], "rows": self.rows, "repeats": self.repeats}
        return {"kind": "generate", "prompts": prompts, "new_tokens": self.new_tokens}


Q8 = Versus(OFFRAMP_Q8, LLAMA_Q8_0)
Q4_VERSUS = (
    Versus(OFFRAMP_Q4, LLAMA_Q4_1, 1.5, 1.7),
    Versus(OFFRAMP_Q4, LLAMA_Q4_0, 1.2, 1.4),
    Versus(OFFRAMP_Q4, OPENVINO),
    Versus(OFFRAMP_Q4, ONNXRUNTIME),
)
F32_VERSUS = (
    Versus(OFFRAMP_F32, LLAMA_F32, 0.95),
    Versus(OFFRAMP_F32, TRANSFORMERS, 2.5),
    Versus(OFFRAMP_F32, VLLM, 2.5),
)
ROW_COUNTS = (1, 2, 4, 8, 16)
ROW_TARGETS = {2: (1.15, 1.1), 4: (1.35, 1.2), 8: (2.2, 1.7)}
"""Rows -> at most so many times the time of one row: target, stretch (q8)."""
BANDWIDTH_TARGET = (0.8, 0.9)

CASES = (
    Case(
        name="decode-64",
        title="One stream, decode, after 64 tokens",
        metric="decode",
        prompt_len=64,
        new_tokens=65,
        versus=(Versus(OFFRAMP_Q8, LLAMA_Q8_0, 1.3, 1.5), *Q4_VERSUS, *F32_VERSUS),
    ),
    Case(
        name="prefill-512",
        title="Prefill of 512 tokens",
        metric="prefill",
        prompt_len=512,
        versus=(
            Versus(OFFRAMP_Q8, LLAMA_Q8_0, 1.3, 2.0),
            Versus(OFFRAMP_Q4, LLAMA_Q4_1),
            Versus(OFFRAMP_Q4, LLAMA_Q4_0),
            Versus(OFFRAMP_Q4, OPENVINO),
            Versus(OFFRAMP_Q4, ONNXRUNTIME),
            Versus(OFFRAMP_F32, LLAMA_F32),
            Versus(OFFRAMP_F32, TRANSFORMERS),
            Versus(OFFRAMP_F32, VLLM),
        ),
    ),
    Case(
        name="streams-16",
        title="16 streams at once, all tokens together",
        metric="decode",
        streams=16,
        prompt_len=32,
        new_tokens=33,
        versus=(
            Versus(OFFRAMP_Q8, LLAMA_Q8_0, 1.4, 2.0),
            Versus(OFFRAMP_Q8, VLLM, 4.0),
            Versus(OFFRAMP_Q4, LLAMA_Q4_1),
            Versus(OFFRAMP_F32, LLAMA_F32),
        ),
    ),
    Case(
        name="decode-4000",
        title="One stream, decode, after 4,000 tokens",
        metric="decode",
        prompt_len=4000,
        new_tokens=33,
        versus=(Versus(OFFRAMP_Q8, LLAMA_Q8_0, 1.2), Versus(OFFRAMP_Q4, LLAMA_Q4_1, 1.2)),
    ),
    *(
        Case(
            name=f"rows-{count}",
            title=f"{count} row{'s' if count > 1 else ''} in one call, after 64 tokens",
            kind="rows",
            metric="row",
            prompt_len=64,
            rows=count,
            versus=(
                Q8,
                Versus(OFFRAMP_Q4, LLAMA_Q4_1),
                Versus(OFFRAMP_Q4, LLAMA_Q4_0),
                Versus(OFFRAMP_F32, LLAMA_F32),
            ),
        )
        for count in ROW_COUNTS
    ),
)
