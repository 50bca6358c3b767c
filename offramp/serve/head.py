"""The head of a request, all that stands before its body: bounded in size, and its target in one form."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import Scope

from offramp.serve.errors import HttpError

MAX_HEAD_BYTES = 16 << 10

ABSOLUTE = re.compile(rb"https?://([^/?#]*)([^?#]*)", re.IGNORECASE)


def head_too_large() -> HttpError:
    """More than is read of a head."""
    message = f"the headers are larger than {MAX_HEAD_BYTES} bytes"
    return HttpError(431, message, hint="send fewer or shorter ones", code="headers_too_large")


def check_head(scope: Scope) -> None:
    """Refuse a large head, also one that came all at once."""
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])
    if size > MAX_HEAD_BYTES:
        raise head_too_large()


def in_origin_form(scope: Scope) -> Scope:
    """The scope with a target that is a path; a whole address, as proxies are sent it, names the host instead."""
    absolute = ABSOLUTE.fullmatch(scope.get("raw_path") or b"")
    if absolute is None:
        return scope
    host, path = absolute[1], absolute[2] or b"/"
    headers = [(b"host", host), *((name, value) for name, value in scope["headers"] if name != b"host")]
    return {**scope, "raw_path": path, "path": unquote(path.decode("ascii")), "headers": headers}
