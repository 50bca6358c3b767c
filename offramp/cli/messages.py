"""What the commands say on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from offramp.errors import OfframpError
from offramp.option_names import with_flags

if TYPE_CHECKING:
    from offramp.llm.output import Report


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def say(text: str) -> None:
    """One line on stderr; lost when that is closed or full, since there is nowhere else to say it."""
    if sys.stderr is not None:  # print() would take stdout instead
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)


def show_error(message: str, hint: str) -> None:
    """An error and what to do about it, a line each."""
    say(f"error: {' '.join(message.split())}")
    say(f"hint: {' '.join(hint.split())}")


START_FLAGS = {"max_context": "--max-context", "kv_memory": "--kv-memory"}
"""Of a conversation's start, which nothing that is typed later can change."""


def show_failure(error: Exception, flags: Mapping[str, str] = START_FLAGS) -> None:
    """Any error: ours with its hint, options by their `flags`; the system's as it is; another one is a bug."""
    if isinstance(error, OfframpError):
        show_error(with_flags(error.message, flags), with_flags(error.hint, flags))
    elif isinstance(error, OSError):
        show_error(str(error), "free what it needs, or point elsewhere, and try again")
    else:
        hint = "run it again with --debug and report the traceback"
        show_error(f"internal error: {type(error).__name__}: {error}", hint)


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
    layers = f"{report.mean_exit_layer:.1f} layers a token, " if report.exits is not None else ""
    full = f" (all layers ran: {report.mode_reason})" if report.mode_reason is not None else ""
    written = f"{report.num_little_tokens} written by {report.little}, " if report.little is not None else ""
    drafts = f"{report.num_accepted_tokens} of {report.num_draft_tokens} drafted, " if report.num_drafts else ""
    first = f"first token after {report.prefill_seconds:.2f} s, " if report.output_tokens else ""
    return (
        f"{counted(report.prompt_tokens, 'prompt token')}{cached}, {counted(report.output_tokens, 'output token')}, "
        f"{speed}{layers}{written}{drafts}{first}finished by {', '.join(report.finish_reasons)}{full}"
    )


def note_context_ends_first(
    prompt_len: int, max_tokens: int | None, max_context: int, *, name: str = "--max-tokens"
) -> None:
    """Tell a user who asked for more tokens than the context has room for, by an option of that name."""
    if max_tokens is not None and prompt_len + max_tokens > max_context:
        behind = f", {max_context - prompt_len} behind this prompt" if prompt_len else ""
        say(f"note: {name}={max_tokens} exceeds the context of {max_context} tokens{behind}: it ends there")


def note_idle_exits(pack: str | None, mode: str, instead: str, draft: str | None = None) -> None:
    """Tell a user whose exit pack lets no token leave in this mode; `instead` says what uses it."""
    from offramp.draft import AUTO, EARLY_EXIT, draft_name

    drafter = AUTO if draft is None else draft_name(draft)
    if pack is not None and mode in ("lossless", "full") and drafter != EARLY_EXIT:
        use = "drafts where that pays" if (mode, drafter) == ("lossless", AUTO) else "changes nothing"
        say(f"note: mode {mode} runs all layers of every token, and --exits {pack} {use}: {instead}")


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 message" or "2 messages"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def mebibytes(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**20:.1f} MiB"
