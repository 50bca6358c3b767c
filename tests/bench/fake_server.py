"""A server that answers as a test says, byte by byte, on a free loopback port and in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes to send, and seconds to wait between them; without `complete` the connection breaks at the end."""

    parts: Sequence[bytes | float] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    complete: bool = True


Reply = Callable[[dict[str, Any]], Answer]
"""From a request's body."""


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def text_chunk(text: str, finish_reason: str | None = None) -> bytes:
    """Of a completion."""
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]})


def usage_chunk(prompt_tokens: int, completion_tokens: int) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return event({"choices": [], "usage": usage})


def refusal(status: int, message: str) -> Answer:
    body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()
    return Answer([body], status, "application/json")


@dataclass
class FakeServer:
    """`with FakeServer(reply) as server:`; pages by path are taken from the front of their list, but for the last."""

    reply: Reply
    pages: dict[str, list[bytes]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)  # of every request, as sent
    base: str = ""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,))
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._until_stopped(ready))

    async def _until_stopped(self, ready: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection lives on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.headers.append(head)
        path = head.split()[1]
        lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(lengths[0]) if lengths else 0)
        if path in self.pages:
            pages = self.pages[path]
            answer = Answer([pages.pop(0) if len(pages) > 1 else pages[0]], content_type="text/plain")
        elif body:
            self.bodies.append({"path": path, **json.loads(body)})
            answer = self.reply(self.bodies[-1])
        else:
            answer = refusal(404, "no such page")
        start = (
            f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(start.encode())
        for part in answer.parts:
            if isinstance(part, float):
                await writer.drain()
                await asyncio.sleep(part)
            else:
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if answer.complete:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return answer.complete
