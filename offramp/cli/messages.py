"""What the commands say on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offramp.llm.output import Report


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


def show_error(message: str, hint: str) -> None:
    """An error and what to do about it, a line each."""
    say(f"error: {' '.join(message.split())}")
    say(f"hint: {' '.join(hint.split())}")


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Show the package's log, from warnings up, as lines of ours."""
    log, handler = logging.getLogger("offramp"), _ToStderr()
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


def statistics_line(report: Report) -> str:
    """One line about an answer."""
    cached = f" ({report.cached_tokens} cached)" if report.cached_tokens else ""
    speed = f"{report.tokens_per_second:.1f} tokens/s, " if report.tokens_per_second is not None else ""
    return (
        f"{report.prompt_tokens} prompt tokens{cached}, {report.output_tokens} output tokens, {speed}"
        f"first token after {report.prefill_seconds:.2f} s, finished by {', '.join(report.finish_reasons)}"
    )


def mebibytes(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**20:.1f} MiB"
