"""Markup in which every text is escaped: pieces are built, never pasted together."""

from __future__ import annotations

import re
from html import escape

VOID = frozenset({"meta", "br", "col"})
ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that markup can't hold, or that turn the direction of what follows them."""


class Html(str):
    """Markup; any other text is escaped before it goes into one."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """One element. `class_` stands for class and `font_size` for font-size; an attribute of None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_quoted(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    start = f"<{name}{written}>"
    return Html(start if name in VOID else f"{start}{joined(*children)}</{name}>")


def joined(*parts: str) -> Html:
    """Pieces one after the other, plain text escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(clean(part)) for part in parts))


def between(separator: str, parts: list[Html]) -> Html:
    """Pieces with a text between each two."""
    return Html(joined(separator).join(parts))


def clean(text: str) -> str:
    """The text, with a mark in the place of each character that a page can't hold."""
    return ODD.sub("\ufffd", text)


def cut(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis, so that it has at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _quoted(value: str | float) -> str:
    """A text escaped, a number as short as a drawing needs it."""
    if isinstance(value, str):
        return escape(clean(value))
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
