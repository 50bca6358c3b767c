"""Ask the application over HTTP, in this process or through a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI

from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.serve.app import make_app
from offramp.serve.hosted import Found, Hosted, Live
from offramp.serve.listen import bind, http_config, url_of
from offramp.serve.models import Models
from offramp.serve.served import Served
from offramp.serve.settings import ServerSettings
from offramp.serve.worker import Worker

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Present:
    """Where a model comes from that is in memory already."""

    def check(self) -> None:
        raise AssertionError("nobody asks")

    def find(self) -> Found:
        raise AssertionError("nobody asks")


class Api:
    """The application without a socket, asked from one thread outside of any event loop."""

    def __init__(self, app: FastAPI, worker: Worker, runner: asyncio.Runner) -> None:
        self.app = app
        self.worker = worker
        self._runner = runner

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await asyncio.wait_for(client.request(method, path, **options), 60)

        return self._runner.run(send())

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: object, **options: Any) -> httpx2.Response:
        return self.ask("POST", path, json=body, **options)

    def post_bytes(self, path: str, body: bytes, content_type: str | None = "application/json") -> httpx2.Response:
        headers = {} if content_type is None else {"content-type": content_type}
        return self.ask("POST", path, content=body, headers=headers)

    def answer(self, path: str, **body: object) -> dict[str, Any]:
        """The answer to a request that must succeed."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def stream(self, path: str, **body: object) -> list[dict[str, Any]]:
        """All chunks of a stream that must succeed, [DONE] checked and left out."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return chunks_of(response.text)

    def refusal(self, path: str, body: object, status: int = 400) -> dict[str, Any]:
        """The error object of a request that must be refused."""
        return error_of(self.post(path, body), status)


def error_of(response: httpx2.Response, status: int = 400) -> dict[str, Any]:
    """The error object of a response, whose shape is always the same."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return dict(error)


def chunks_of(text: str) -> list[dict[str, Any]]:
    """Events of a whole stream."""
    events = text.split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


@contextmanager
def served(
    loaded: LoadedModel,
    serving: Serving | None = None,
    *,
    max_queued: int = 128,
    clock: Callable[[], float] = time.perf_counter,
    served_names: tuple[str, ...] = ("toy",),
    **settings: Any,
) -> Iterator[Api]:
    """An application over this model, named toy; without drafts unless they are asked for."""
    serving = serving or Serving(draft="off")
    worker = Worker(loaded, serving, max_queued=max_queued, clock=clock)
    chosen = ServerSettings(max_queued=max_queued, **settings)
    runner = asyncio.Runner()  # has a loop from its first use on
    hosted = Hosted(served_names, Present(), mode=serving.mode)
    hosted.put(Live(Served(loaded, serving, served_names), worker), 0, 0.0)
    worker.start()
    try:
        yield Api(make_app(Models([hosted]), chosen), worker, runner)
    finally:
        worker.stop()
        runner.close()


@contextmanager
def listening(app: FastAPI, *, send_bytes: int | None = None, port: int = 0) -> Iterator[str]:
    """The application on a free port, or that one; gives its address. `send_bytes` bounds the system's buffers."""
    with bind("127.0.0.1", port) as listener:
        if send_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        server = _ThreadServer(http_config(app, drain_seconds=1))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert server.up.wait(30)
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


class _ThreadServer(uvicorn.Server):
    """Tells when it listens, and ends at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        while self.server_state.tasks:
            await asyncio.sleep(0.001)


def messages(text: str = "hello") -> list[Mapping[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]
