"""A response as it goes out: the object, or the events that lead to it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from offramp.core import TokenLogprobs
from offramp.llm.output import Report, RequestOutput
from offramp.serve.answering import event
from offramp.serve.asked import Asked
from offramp.serve.errors import Failure
from offramp.serve.logprobs import chat_logprobs
from offramp.serve.report import offramp_object
from offramp.serve.response_items import Json, ResponseItems
from offramp.serve.running import Added, Running
from offramp.serve.served import Served


class ResponseAnswer:
    """Of one request, which has one choice (`offramp.serve.answering.Answering`)."""

    def __init__(self, asked: Asked, served: Served, request_id: str) -> None:
        self._asked = asked
        self._tokenizer = served.loaded.tokenizer
        self._items = ResponseItems(asked.calling)
        self._number = 0  # of events
        self._head: Json = {
            "id": f"resp_{request_id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": asked.model,
            "output": [],
            **asked.repeated,
            "usage": None,
        }

    def whole(self, outputs: Sequence[RequestOutput], report: Report) -> Json:
        [choice] = outputs[0].outputs
        self._items.push(choice.text, self._logprobs(choice.logprobs), ended=choice.finish_reason)
        return self._finished(outputs, report)

    def events(self, added: Sequence[Added], run: Running) -> bytes:
        events: list[Json] = []
        if self._number == 0:
            events += [{"type": f"response.{state}", "response": self._head} for state in ("created", "in_progress")]
        for _, delta in added:
            events += self._items.push(delta.text, self._logprobs(delta.logprobs), ended=delta.finish_reason)
        if run.finished:
            response = self._finished(run.outputs(), run.report())
            events.append({"type": f"response.{response['status']}", "response": response})
        return b"".join(map(self._written, events))

    def failure(self, failure: Failure) -> bytes:
        error = {"code": failure.error["code"] or failure.error["type"], "message": failure.error["message"]}
        failed = {**self._head, "status": "failed", "error": error, "output": self._items.items}
        return self._written({"type": "response.failed", "response": failed})

    def _finished(self, outputs: Sequence[RequestOutput], report: Report) -> Json:
        cut = outputs[0].outputs[0].finish_reason == "length"
        answer: Json = {
            **self._head,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._items.items,
            "usage": _usage(report),
        }
        told = offramp_object(outputs, report, self._asked.report, self._asked.pipeline)
        return answer if told is None else {**answer, "offramp": told}

    def _written(self, value: Json) -> bytes:
        """An event with its number."""
        kind = str(value["type"])
        numbered = {"type": kind, "sequence_number": self._number, **value}
        self._number += 1
        return event(numbered, kind)

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> list[object]:
        if not entries:
            return []
        content = chat_logprobs(self._tokenizer, entries)["content"]
        assert isinstance(content, list)
        return content


def _usage(report: Report) -> Json:
    return {
        "input_tokens": report.prompt_tokens,
        "input_tokens_details": {"cached_tokens": report.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": report.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": report.prompt_tokens + report.output_tokens,
    }
