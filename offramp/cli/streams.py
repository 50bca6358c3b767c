"""The standard streams, also where they are closed, full or read by nobody."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from offramp.errors import InvalidRequestError, ResourceError


class OutputError(ResourceError):
    """Standard output takes no more."""


def standard_input() -> TextIO:
    """What is typed or piped in; refused when the stream is closed."""
    if sys.stdin is None:
        raise InvalidRequestError("standard input is closed", hint="pipe something in, or leave it open")
    return sys.stdin


def put(text: str) -> None:
    """Data to standard output, at once. BrokenPipeError when its reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = "free some space, or send it elsewhere"
        raise OutputError(f"can't write to standard output: {error.strerror or error}", hint=hint) from error


def write_utf8(stream: TextIO | None) -> None:
    """Text goes out as UTF-8 whatever the locale says; lone surrogates of odd arguments as escapes."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")


def settle(stream: TextIO | None) -> None:
    """Silence a stream that can't take what is left: the interpreter would try again at its end, and exit with 120."""
    if stream is not None:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
