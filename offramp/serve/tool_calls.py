"""One choice's text as chat tells it: a message, or its deltas, with the calls of tools taken out of the content."""

from __future__ import annotations

from offramp.llm.calling import Calling
from offramp.llm.tool_reader import CallBegins, Part, read_whole


class SaidAndCalled:
    """Reads one choice, whole or as it comes. Without `calling` all of its text is content."""

    def __init__(self, calling: Calling | None) -> None:
        self._reader = None if calling is None else calling.reader()

    def message(self, text: str) -> dict[str, object]:
        """`content` and `tool_calls` of a whole text; content is null where there are calls alone."""
        if self._reader is None:
            return {"content": text}
        content, calls = read_whole(self._reader, text)
        if not calls:
            return {"content": content}
        written = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        return {"content": content or None, "tool_calls": written}

    def deltas(self, text: str, *, last: bool) -> list[dict[str, object]]:
        """What the next piece of text tells; a call's name comes first, its arguments in pieces behind."""
        if self._reader is None:
            return [{"content": text}] if text else []
        return [_delta(part) for part in self._reader.push(text, last=last)]

    def finish_reason(self, reason: str) -> str:
        """Why the choice ended, once all of it was read: calls are a reason of their own, if nothing was cut."""
        reader = self._reader
        called = reader is not None and reader.num_calls and not reader.within_arguments
        return "tool_calls" if called and reason == "stop" else reason


def _delta(part: Part) -> dict[str, object]:
    if isinstance(part, str):
        return {"content": part}
    if isinstance(part, CallBegins):
        function = {"name": part.name, "arguments": ""}
        return {"tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]}
    return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}
