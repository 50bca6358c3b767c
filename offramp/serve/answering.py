"""How an answer goes out: one body, or events, in the shape of its API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from offramp.llm.output import Report, RequestOutput
from offramp.serve.asked import Asked
from offramp.serve.errors import Failure
from offramp.serve.report import offramp_object, usage
from offramp.serve.running import Added, Running
from offramp.serve.served import Served
from offramp.serve.writing import Writer


class Answering(Protocol):
    """Writes one request's answer, either `whole` or in bytes of an event stream."""

    def whole(self, outputs: Sequence[RequestOutput], report: Report) -> dict[str, object]:
        """The body."""
        ...

    def events(self, added: Sequence[Added], run: Running) -> bytes:
        """What a batch of the run brought; of a finished run the end of the stream too."""
        ...

    def failure(self, failure: Failure) -> bytes:
        """The end of a stream that an error cut."""
        ...


MakeAnswering = Callable[[Asked, Served, str], Answering]
"""For one request, whose id is the last argument."""

DONE = b"data: [DONE]\n\n"


def event(value: Mapping[str, object], name: str | None = None) -> bytes:
    """One event; JSON has no bare line ends that could cut it."""
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def choices(make_writer: Callable[[Asked, Served], Writer]) -> MakeAnswering:
    """Of chat and completions, whose writers differ in what a choice is."""
    return lambda asked, served, request_id: Choices(asked, served, request_id, make_writer(asked, served))


class Choices:
    """`choices` with usage and `offramp`; as a stream chunks of them, then [DONE]."""

    def __init__(self, asked: Asked, served: Served, request_id: str, writer: Writer) -> None:
        self._asked = asked
        self._writer = writer
        self._head: dict[str, object] = {  # what the answer and every chunk begins with
            "id": writer.id_prefix + request_id,
            "object": writer.chunk_kind if asked.stream else writer.whole_kind,
            "created": int(time.time()),
            "model": asked.model,
            "system_fingerprint": served.fingerprint,
        }

    def whole(self, outputs: Sequence[RequestOutput], report: Report) -> dict[str, object]:
        asked = self._asked
        answer = {**self._head, **self._writer.whole(outputs), "usage": usage(report, predicted=asked.predicted)}
        told = offramp_object(outputs, report, asked.report, asked.pipeline)
        return answer if told is None else {**answer, "offramp": told}

    def events(self, added: Sequence[Added], run: Running) -> bytes:
        """The last chunks of the stream carry usage and `offramp`."""
        asked = self._asked
        null_usage = {"usage": None} if asked.include_usage else {}
        parts = [choice for prompt, delta in added for choice in self._writer.chunks(prompt, delta)]
        chunks = [{**self._head, "choices": [part], **null_usage} for part in parts]
        if not run.finished:
            return b"".join(map(event, chunks))
        outputs, report = run.outputs(), run.report()
        if asked.include_usage:
            chunks.append({**self._head, "choices": [], "usage": usage(report, predicted=asked.predicted)})
        told = offramp_object(outputs, report, asked.report, asked.pipeline)
        if told is not None:
            chunks[-1]["offramp"] = told
        return b"".join(map(event, chunks)) + DONE

    def failure(self, failure: Failure) -> bytes:
        return event(failure.body) + DONE
