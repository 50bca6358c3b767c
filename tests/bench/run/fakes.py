"""Programs that stand in the place of a method's process, for `MethodProcess(command=...)`."""

from __future__ import annotations

import sys

from offramp.bench.run.method import Method
from offramp.bench.run.process import MethodProcess
from offramp.llm.model_flags import ModelFlags

PRELUDE = """
import json, os, sys, time
FACTS = dict(model="toy", source_hash="hash", weights={"q8": 1}, kv="f16", threads=1, kernels="avx2", num_layers=4,
             max_context=256, chat=True, large_pages=False)
TAKEN = dict(seconds=1.0, prompt_tokens=2, output_tokens=2, decode_seconds=0.5, decoded_tokens=1, peak_bytes=1000,
             joules=None, note=None)

def say(**answer):
    print(json.dumps(answer), flush=True)

def answered(item, ids=(1, 2), **fields):
    return dict(item=item, prompt_tokens=2, token_ids=list(ids), finish_reason="stop", first_seconds=0.5,
                steps=[[500.0, 1], [1000.0, 1]], **fields)

def requests():
    for line in sys.stdin:
        request = json.loads(line)
        if "load" in request:
            say(facts=FACTS)
        else:
            yield request

def answer(request, **fields):
    for item in request["turn"]["items"]:
        say(answered=answered(item["name"], **fields))
    say(taken=TAKEN)
"""


def fake_process(program: str, *, name: str = "plain", silence_seconds: float = 60.0) -> MethodProcess:
    """A process that runs `program` behind the prelude above."""
    return MethodProcess(
        Method(name, ModelFlags(draft="off")),
        "toy",
        command=(sys.executable, "-S", "-c", PRELUDE + program),
        silence_seconds=silence_seconds,
    )
