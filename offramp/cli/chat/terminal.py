"""Messages typed or pasted by a person, or piped in."""

from __future__ import annotations

import os
import sys

from offramp.cli.chat.pastes import Pastes, read_paste
from offramp.cli.messages import say
from offramp.errors import InvalidRequestError

PROMPT, MORE = "> ", ". "
PASTE_BEGINS = '"\\e[200~"'
INSERT_COMPLETIONS = ord("*")


class LineReader:
    """Reads one message at a time. EOFError at the end of input, KeyboardInterrupt on Ctrl-C.

    In a terminal, lines can be edited and recalled, a pasted text of many lines is one message, and a line that ends
    with a backslash goes on. Piped input is one message a line, with the same backslash rule.
    """

    def __init__(self) -> None:
        self._pastes = Pastes()
        self._edits = sys.stdin.isatty() and sys.stdout.isatty() and _start_editing(self._pastes)
        self._shows_prompt = sys.stdin.isatty()

    def read(self) -> str:
        """The next message, without surrounding white space."""
        lines = [self._line(PROMPT)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(MORE))
        return self._pastes.expand("\n".join(lines)).strip()

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


def _start_editing(pastes: Pastes) -> bool:
    """Line editing with history, and pastes taken as one; False where Python has no readline."""
    try:
        import readline
    except ImportError:
        say("note: no line editing here; end a line with \\ to go on in the next")
        return False

    def take_paste(text: str, state: int) -> None:
        """Readline calls this for the keys of a completion; those bound here announce a pasted text instead."""
        if state == 0 and readline.get_completion_type() == INSERT_COMPLETIONS:
            readline.insert_text(pastes.shown(read_paste(sys.stdin.fileno())))

    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.parse_and_bind("set bell-style none")  # it would ring for want of completions
        readline.set_completer(take_paste)
        readline.parse_and_bind(f"{PASTE_BEGINS}: insert-completions")
    if os.environ.get("TERM") == "dumb":
        readline.parse_and_bind("set enable-bracketed-paste off")
    return True
