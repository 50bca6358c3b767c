"""The items of a response while they are written: messages and calls, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterator

from offramp.llm.calling import Calling
from offramp.llm.tool_reader import CallBegins, Part, call_id

ID_LEN = 24
Json = dict[str, object]


class ResponseItems:
    """Text becomes messages, calls become items of their own, in the order in which they were written."""

    def __init__(self, calling: Calling | None) -> None:
        self._reader = None if calling is None else calling.reader()
        self._items: list[Json] = []  # as they are so far
        self._open = False  # the last one goes on

    @property
    def items(self) -> list[Json]:
        """The whole output, once all of it was read."""
        return self._items

    def push(self, text: str, logprobs: list[object], *, ended: str | None) -> list[Json]:
        """The events of the next piece; `ended` is the finish reason, when it is the last.

        There is always an item, if only an empty message.
        """
        parts: list[Part] = [text] if text or logprobs else []
        if self._reader is not None:
            parts = self._reader.push(text, last=ended is not None)
        events = [event for part in parts for event in self._take(part, logprobs)]
        if ended is not None:
            if not self._items:
                events += self._begin_message()
            cut = ended == "length" or (self._reader is not None and self._reader.within_arguments)
            events += self._end("incomplete" if cut else "completed")
        return events

    def _take(self, part: Part, logprobs: list[object]) -> Iterator[Json]:
        if isinstance(part, str):
            if not self._open or self._items[-1]["type"] != "message":
                yield from self._begin_message()
            yield self._add_text(part, logprobs)
        elif isinstance(part, CallBegins):
            yield from self._begin(
                {
                    "id": f"fc_{call_id(ID_LEN).removeprefix('call_')}",
                    "type": "function_call",
                    "status": "in_progress",
                    "arguments": "",
                    "call_id": part.id,
                    "name": part.name,
                }
            )
        else:
            item = self._items[-1]
            item["arguments"] = f"{item['arguments']}{part.text}"
            yield {**self._event("response.function_call_arguments.delta"), "delta": part.text}

    def _begin_message(self) -> Iterator[Json]:
        identity = f"msg_{call_id(ID_LEN).removeprefix('call_')}"
        message: Json = {"id": identity, "type": "message", "status": "in_progress", "content": [], "role": "assistant"}
        yield from self._begin(message)
        part: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        message["content"] = [part]
        yield {**self._event("response.content_part.added"), "content_index": 0, "part": dict(part)}

    def _add_text(self, text: str, logprobs: list[object]) -> Json:
        part = self._part
        part["text"] = f"{part['text']}{text}"
        part["logprobs"] = [*self._logprobs, *logprobs]
        return {
            **self._event("response.output_text.delta"),
            "content_index": 0,
            "delta": text,
            "logprobs": logprobs,
        }

    def _begin(self, item: Json) -> Iterator[Json]:
        if self._open:
            yield from self._end("completed")
        self._items.append(item)
        self._open = True
        yield {"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": dict(item)}

    def _end(self, status: str) -> list[Json]:
        """Close the last item."""
        item, self._open = self._items[-1], False
        item["status"] = status
        done: Json = {"type": "response.output_item.done", "output_index": len(self._items) - 1, "item": dict(item)}
        if item["type"] == "function_call":
            whole = {**self._event("response.function_call_arguments.done"), "name": item["name"]}
            return [{**whole, "arguments": item["arguments"]}, done]
        part = self._part
        return [
            {
                **self._event("response.output_text.done"),
                "content_index": 0,
                "text": part["text"],
                "logprobs": part["logprobs"],
            },
            {**self._event("response.content_part.done"), "content_index": 0, "part": dict(part)},
            done,
        ]

    @property
    def _part(self) -> Json:
        """The text of the last message."""
        content = self._items[-1]["content"]
        assert isinstance(content, list)
        part: Json = content[0]
        return part

    @property
    def _logprobs(self) -> list[object]:
        logprobs = self._part["logprobs"]
        assert isinstance(logprobs, list)
        return logprobs

    def _event(self, kind: str) -> Json:
        """Of the last item."""
        return {"type": kind, "item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
