"""Pasted text in the line editor: a short one as it is, a long one as a few words that stand for it."""

from __future__ import annotations

import os
import re
import select

MAX_SHOWN_LINES = 10
MAX_SHOWN_CHARACTERS = 1000
END = b"\x1b[201~"
"""What a terminal sends after a pasted text."""

STALL_SECONDS = 2.0
"""A terminal that sends nothing for so long in the middle of a paste has lost its end."""


class Pastes:
    """The long texts pasted so far, by the words that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shown(self, text: str) -> str:
        """What the edited line gets for a pasted text."""
        num_lines = len(text.rstrip("\n").split("\n"))
        if num_lines <= MAX_SHOWN_LINES and len(text) <= MAX_SHOWN_CHARACTERS and "\0" not in text:
            return text
        lines = f"{num_lines:,} line{'' if num_lines == 1 else 's'}"
        size = f"{lines}, {len(text):,} characters]"
        words, number = f"[pasted {size}", 1
        while self._texts.get(words, text) != text:
            number += 1
            words = f"[pasted text {number}: {size}"
        self._texts[words] = text
        return words

    def expand(self, line: str) -> str:
        """The line with the texts put back."""
        if not self._texts:
            return line
        known = "|".join(re.escape(words) for words in self._texts)
        return re.sub(known, lambda found: self._texts[found[0]], line)


def read_paste(descriptor: int) -> str:
    """The rest of a pasted text, byte by byte so that nothing behind its end is taken."""
    taken = bytearray()
    while not taken.endswith(END) and select.select([descriptor], [], [], STALL_SECONDS)[0]:
        byte = os.read(descriptor, 1)
        if not byte:
            break
        taken += byte
    text = taken.removesuffix(END).decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n")
