"""The outermost layer: lets callers in, names and traces each request, and turns every error into OpenAI's shape."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offramp.errors import OfframpError
from offramp.serve.errors import failure_of, internal_failure
from offramp.serve.head import check_head, in_origin_form
from offramp.serve.hosts import AllowedHosts
from offramp.serve.keys import ApiKeys
from offramp.serve.page import PAGE
from offramp.serve.request_metrics import CLIENT_CLOSED, RequestMetrics
from offramp.serve.settings import ServerSettings
from offramp.serve.site import CALLER, Caller

OPEN = frozenset({"/health", *PAGE})
"""Paths that need no key."""

UNTRACED = frozenset({"/health", "/metrics"})
"""Paths that are asked for all the time."""

NO_KIND = re.compile(r":\w+}")
"""The kind of a path's parameter, which its name does without."""

log = logging.getLogger("offramp.serve")


class Gate:
    """ASGI middleware. `routes` are the paths that metrics and the log may name."""

    def __init__(
        self, app: ASGIApp, *, settings: ServerSettings, metrics: RequestMetrics, routes: Iterable[str]
    ) -> None:
        self._app = app
        self._hosts = AllowedHosts(settings.allowed_hosts)
        self._keys = ApiKeys(settings.api_keys)
        self._isolate = settings.isolate_keys
        self._metrics = metrics
        self._routes = frozenset(routes)
        self._families = {path.partition("{")[0]: NO_KIND.sub("}", path) for path in self._routes if "{" in path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = in_origin_form(scope)
        path = scope["path"]
        request_id = uuid4().hex
        trace = self._metrics.arrived(request_id, self._route_of(path))
        headers = Headers(scope=scope)
        answer = _Answer(send, receive, request_id, expected="expect" in headers)
        try:
            check_head(scope)
            self._hosts.check(headers.get("host"))
            key = None if path in OPEN else self._keys.identify(headers.get("authorization"))
            client = key or (scope["client"] or ("",))[0]
            salt = key if self._isolate and key else ""
            await self._app({**scope, CALLER: Caller(request_id, client, salt, trace)}, answer.receive, answer.send)
        except OfframpError as error:
            failure = failure_of(error)
            trace.failed(failure)
            await failure.response()(scope, receive, answer.send)
        except ClientDisconnect:
            answer.status = CLIENT_CLOSED
        except Exception as error:
            _log_bug(error)
            trace.failed(internal_failure())
            if answer.status is not None:
                raise _BrokenError from None  # half sent: the connection must be closed
            await internal_failure().response()(scope, receive, answer.send)
        finally:
            if path not in UNTRACED:
                trace.finished(answer.status or CLIENT_CLOSED)

    def _route_of(self, path: str) -> str:
        """The route's name in metrics and log: none of the client's text."""
        if path in self._routes:
            return path
        return next((name for start, name in self._families.items() if path.startswith(start)), "other")


class _BrokenError(Exception):
    """An answer that can't be finished; what went wrong has been logged."""


class _Answer:
    """Sends an answer under the request's id, and notes its status.

    A client that asks before it sends its body (`expected`) and gets an answer instead may send it or not, so that
    nobody knows where its next request would begin: the connection ends.
    """

    def __init__(self, send: Send, receive: Receive, request_id: str, *, expected: bool) -> None:
        self._send = send
        self._receive = receive
        self._request_id = request_id
        self._expected = expected
        self.status: int | None = None

    async def receive(self) -> Message:
        self._expected = False
        return await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            if self._expected:
                headers["connection"] = "close"
        await self._send(message)


def _log_bug(error: Exception) -> None:
    """Where it happened, without the error's text: that may hold a part of a prompt."""
    places = "".join(traceback.format_tb(error.__traceback__))
    log.error("internal error: %s\n%s", type(error).__name__, places.rstrip())
