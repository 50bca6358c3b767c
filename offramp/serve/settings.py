"""How the server serves, apart from its models' own settings."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.params import check_int, check_number
from offramp.serve.hosts import host_name

MAX_QUEUED = 1 << 20
MAX_BODY = 1 << 32
MAX_SECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Impossible values raise InvalidRequestError, under the names of the command's options.

    Keys never appear in a representation, and so in no log. With `isolate_keys`, requests under different keys share no
    cached K/V and no learned texts.
    """

    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # that a Host header may name; none: all of them
    isolate_keys: bool = False
    max_queued: int = 128  # requests that wait besides those that run
    max_body_bytes: int = 4 << 20
    body_seconds: float = 30.0  # to receive a body
    request_seconds: float = 600.0  # from arrival to the last token
    drain_seconds: float = 30.0  # to finish requests when told to stop
    keep_alive_seconds: float | None = None  # that a model stays in memory without requests; None: until another comes

    def __post_init__(self) -> None:
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                hint = "a key is one word of printable ASCII characters"
                raise InvalidRequestError("an API key is empty or can't be sent", hint=hint, param="api_key")
        for host in self.allowed_hosts:
            host_name(host)
        check_int("max_queue", self.max_queued, 0, MAX_QUEUED)
        check_int("max_body", self.max_body_bytes, 1024, MAX_BODY)
        check_number("request_timeout", self.request_seconds, 0.0, MAX_SECONDS, open_low=True)
        check_number("body_seconds", self.body_seconds, 0.0, MAX_SECONDS, open_low=True)
        check_number("drain_seconds", self.drain_seconds, 0.0, MAX_SECONDS)
        if self.keep_alive_seconds is not None:
            check_number("keep_alive", self.keep_alive_seconds, 0.0, MAX_SECONDS, open_low=True)
        if self.isolate_keys and not self.api_keys:
            hint = "give at least one --api-key"
            raise InvalidRequestError("there are no API keys to isolate", hint=hint, param="isolate_keys")

    def __repr__(self) -> str:
        return f"ServerSettings({len(self.api_keys)} API keys)"
