"""Serving an application on a socket until a signal: requests under way are finished, within a deadline."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol
from urllib.parse import urlunsplit

import uvicorn
from fastapi import FastAPI

from offramp.errors import ResourceError
from offramp.params import check_int, refused
from offramp.serve.head import MAX_HEAD_BYTES
from offramp.serve.protocol import HttpProtocol

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

KEEP_ALIVE_SECONDS = 75
"""That an idle connection stays open."""

CLOSING_SECONDS = 2.0
"""After the deadline, for errors to be sent and read."""

LAST_SECONDS = 1.0
"""That requests may take to end once they are cut short: a step of the engine, as a rule."""

POLL_SECONDS = 0.05

BIND_HINTS = {
    errno.EADDRINUSE: "stop what listens there, or choose another --port",
    errno.EADDRNOTAVAIL: "--host takes an address of this machine, such as 127.0.0.1; 0.0.0.0 is every one",
    errno.EACCES: "ports below 1024 may need rights: choose another --port",
}
"""By what the system says."""


def bind(host: str, port: int) -> socket.socket:
    """A socket with that address, not listening yet. Raises OfframpError; port 0 takes a free one."""
    check_int("port", port, 0, 65535)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise refused("host", host, "an address of this machine, such as 127.0.0.1") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        hint = BIND_HINTS.get(error.errno or 0, "choose another --host or --port")
        raise ResourceError(f"can't listen on {host} port {port}: {error.strerror}", hint=hint) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients find it."""
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return urlunsplit(("http", address, "", "", ""))


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    host = listener.getsockname()[0]
    return bool(host == "::1" or host.startswith("127."))


class Drained(Protocol):
    """What has requests that are finished before the server ends."""

    @property
    def num_open(self) -> int:
        """How many."""
        ...

    async def drain(self, deadline_seconds: float) -> int:
        """Let nothing new begin, and the others end until the deadline."""
        ...


class Server(uvicorn.Server):
    """Stops at SIGINT or SIGTERM: takes nothing new, finishes what runs; at a second one, at once."""

    def __init__(
        self,
        app: FastAPI,
        models: Drained,
        *,
        drain_seconds: float,
        ready: Callable[[], None],
        stopping: Callable[[int], None],
    ) -> None:
        super().__init__(http_config(app, drain_seconds))
        self._models = models
        self._drain_seconds = drain_seconds
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping(self._models.num_open)
        draining = asyncio.create_task(self._models.drain(self._drain_seconds))
        closing = asyncio.create_task(super().shutdown(sockets))
        while not closing.done() and not self.force_exit:
            await asyncio.wait([closing], timeout=POLL_SECONDS)
        if self.force_exit:
            for connection in list(self.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            if self.server_state.tasks:  # they see that their clients are gone
                await asyncio.wait(list(self.server_state.tasks), timeout=LAST_SECONDS)
        draining.cancel()
        await asyncio.wait([draining])
        await closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn, don't raise them again: stopping on request is success."""
        before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    app: FastAPI,
    models: Drained,
    listener: socket.socket,
    *,
    drain_seconds: float,
    ready: Callable[[], None],
    stopping: Callable[[int], None],
) -> None:
    """Serve until a signal; `stopping` is then told how many requests are finished yet.

    Raises KeyboardInterrupt when a second one cut it short. Main thread only.
    """
    server = Server(app, models, drain_seconds=drain_seconds, ready=ready, stopping=stopping)
    server.run([listener])
    if server.force_exit:
        raise KeyboardInterrupt


def http_config(app: FastAPI, drain_seconds: float) -> uvicorn.Config:
    """How uvicorn shall serve the application."""
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",  # whatever a client sends is no warning of ours
        access_log=False,
        server_header=False,
        proxy_headers=False,  # anyone could write them
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(drain_seconds + CLOSING_SECONDS) + 1,
    )
