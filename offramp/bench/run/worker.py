"""The child of `MethodProcess`: one method's model, asked over JSON lines on stdin, answering on stdout.

`load` is answered by `facts`; `turn` by `heard` now and then, an `answered` or `failed` for each item, and `taken`;
`costs` by `cost` and `perplexities` by `scored` ones, both with an `end`. What fails is answered by an `error`.
Standard output is kept apart from whatever else prints, which goes to stderr. The process ends as soon as stdin does,
in the middle of a turn too, so that it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, BinaryIO

from offramp.bench.results.decode import decoded
from offramp.bench.run.method_model import Asked, Judged, MethodModel
from offramp.bench.run.turn import Fault
from offramp.errors import OfframpError
from offramp.llm.model_flags import ModelFlags

BEAT = 1.0
"""Seconds between two words from a turn under way."""

Send = Callable[[str, object], None]
"""A kind of answer, and its fields."""


def main() -> None:
    """Answer requests until there are no more."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # nothing but the method's own threads
    with _own_output() as output:

        def send(kind: str, fields: object) -> None:
            output.write(json.dumps({kind: fields}).encode() + b"\n")
            output.flush()

        answer_all(_requests(), send)


def answer_all(requests: Iterator[Mapping[str, Any]], send: Send) -> None:
    """Answer each; an error of ours is an answer, any other ends the process with its traceback."""
    model: MethodModel | None = None
    for request in requests:
        try:
            if "load" in request:
                model = MethodModel(request["load"]["model"], ModelFlags().replaced(request["load"]["flags"]))
                send("facts", asdict(model.facts))
                continue
            assert model is not None, "asked before load"
            if "turn" in request:
                _turn(model, decoded(Asked, request["turn"]), send)
            elif "costs" in request:
                for cost in model.costs(**request["costs"]):
                    send("cost", asdict(cost))
                send("end", {})
            else:
                for score in model.perplexities(decoded(Judged, request["perplexities"]).items):
                    send("scored", asdict(score))
                send("end", {})
        except OfframpError as error:
            send("error", asdict(Fault(message=error.message, hint=error.hint)))


def _turn(model: MethodModel, asked: Asked, send: Send) -> None:
    last = time.monotonic()

    def tell(num_ended: int, num_tokens: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= BEAT:
            last = now
            send("heard", {"num_ended": num_ended, "num_tokens": num_tokens})

    turn = model.turn(asked, tell)
    for answer in turn.answers:
        send("answered", asdict(answer))
    for failure in turn.failed:
        send("failed", asdict(failure))
    send("taken", asdict(turn.taken))


def _requests() -> Iterator[Mapping[str, Any]]:
    """Lines of stdin, read by a thread of their own that ends the process when there are no more."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


@contextmanager
def _own_output() -> Iterator[BinaryIO]:
    """Standard output for answers alone; what prints there from now on goes to stderr."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        yield output


if __name__ == "__main__":
    main()
