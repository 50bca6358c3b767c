"""Messages typed or pasted by a person, or piped in."""

from __future__ import annotations

import os
import sys

from offramp.cli.messages import say
from offramp.errors import InvalidRequestError

PROMPT, MORE = "> ", ". "


class LineReader:
    """Reads one message at a time. EOFError at the end of input, KeyboardInterrupt on Ctrl-C.

    In a terminal, lines can be edited and recalled, a pasted text of many lines is one message, and a line that ends
    with a backslash goes on. Piped input is one message a line, with the same backslash rule.
    """

    def __init__(self) -> None:
        self._edits = sys.stdin.isatty() and sys.stdout.isatty() and _start_editing()
        self._shows_prompt = sys.stdin.isatty()

    def read(self) -> str:
        """The next message, without surrounding white space."""
        lines = [self._line(PROMPT)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(MORE))
        return "\n".join(lines).strip()

    def _line(self, prompt: str) -> str:
        try:
            if self._edits:
                return input(prompt)
            if self._shows_prompt:
                print(prompt, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            hint = "send UTF-8 text"
            raise InvalidRequestError(f"the input is not UTF-8 (byte {error.start} of a line)", hint=hint) from error
        if not line:
            raise EOFError
        return line.rstrip("\n")


def _start_editing() -> bool:
    """Line editing with history, and pastes taken as one; False where Python has no readline."""
    try:
        import readline
    except ImportError:
        say("note: no line editing here; end a line with \\ to go on in the next")
        return False
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
    if os.environ.get("TERM") == "dumb":
        readline.parse_and_bind("set enable-bracketed-paste off")
    return True
