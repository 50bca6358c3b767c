"""The server that is measured: where it is, whether it may be, and what a request to it looks like."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from offramp.bench.serve.prompts import Endpoint, Prompt
from offramp.errors import InvalidRequestError

OURS = frozenset(
    ("model", "prompt", "messages", "max_tokens", "stream", "stream_options", "n", "temperature", "ignore_eos")
)
"""Fields that the load generator sets itself, or could not measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and a way to ask it. `base` has no path behind the server's own, neither /v1 nor a slash."""

    base: str
    model: str
    endpoint: Endpoint
    temperature: float = 0.0
    ignore_eos: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.base}/v1/{'chat/completions' if self.endpoint == 'chat' else 'completions'}"

    def body(self, prompt: Prompt) -> dict[str, object]:
        """The request's JSON: streamed, with the usage at its end."""
        content = {"messages" if self.endpoint == "chat" else "prompt": prompt.content}
        ignore = {"ignore_eos": True} if self.ignore_eos else {}
        return {
            "model": self.model,
            **content,
            "max_tokens": prompt.output_len,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            **ignore,
            **self.extra,
        }


def check_extra(extra: object) -> dict[str, object]:
    """Fields for every request's body. Raises InvalidRequestError for those that are set already."""
    if not isinstance(extra, dict):
        raise InvalidRequestError("--extra-body is not a JSON object", hint="""such as '{"top_k": 20}'""")
    taken = sorted(OURS & extra.keys())
    if taken:
        hint = "use the option of that name, if there is one"
        raise InvalidRequestError(f"--extra-body may not set {', '.join(taken)}", hint=hint)
    return extra


def server_base(url: str, *, allow_remote: bool) -> str:
    """The server's address without /v1. Raises InvalidRequestError for what is none, or is not this machine."""
    shown = f"--base-url {url!r}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequestError(f"{shown}: {error}", hint="such as http://127.0.0.1:8000") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidRequestError(f"{shown} is no server's address", hint="such as http://127.0.0.1:8000")
    if "@" in parts.netloc:
        raise InvalidRequestError("--base-url holds a password", hint="give a key in OPENAI_API_KEY")
    if not (allow_remote or is_loopback(host)):
        hint = "load belongs on machines that you run; add --allow-remote if you run that one"
        raise InvalidRequestError(f"{shown} is not this machine", hint=hint)
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def is_loopback(host: str) -> bool:
    """The host is this machine by its very name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
