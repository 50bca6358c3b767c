"""Hide special-token text in what users wrote, so that a rendered chat holds no control token but the template's own.

A special token's first character is replaced by a private-use character that occurs nowhere else; lengths stay as they
are. `Tokenizer.encode_masked` undoes it after special tokens have been found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from offramp.errors import InvalidRequestError

PRIVATE_USE = (range(0xF8FF, 0xDFFF, -1), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class Disguise:
    """Masks for the special tokens of one tokenizer, chosen so that no mask occurs in `values` or `template`."""

    def __init__(self, special_texts: Iterable[str], values: object, template: str) -> None:
        self._specials = sorted({text for text in special_texts if text}, key=len, reverse=True)
        given: set[str] = set().union(*strings(values))
        used = given.union(template)
        free = (chr(code) for code in chain(*PRIVATE_USE) if chr(code) not in used)
        firsts = sorted({text[0] for text in self._specials} & given)
        self._masks: dict[str, str] = dict(zip(firsts, free, strict=False))
        if len(self._masks) < len(firsts):
            raise InvalidRequestError(
                "the messages use every private-use character of Unicode and text of special tokens",
                hint="leave the private-use characters out",
                param="messages",
            )
        self.needed = bool(firsts)

    @property
    def masks(self) -> Mapping[str, str]:
        """Mask -> the character it stands for."""
        return {mask: first for first, mask in self._masks.items()}

    def reveal(self, text: str) -> str:
        return text.translate({ord(mask): first for mask, first in self.masks.items()})

    def strongest_first(self, values: object) -> Iterator[object]:
        """`values` disguised in three ways, each hiding less: a template may change its mind over what it can't see.

        Every character that could begin a special token; whole special tokens, and what could begin one at a text's
        end; whole special tokens.
        """
        table = {ord(first): mask for first, mask in self._masks.items()}
        yield _map_strings(values, lambda text: text.translate(table))
        yield _map_strings(self.hide_specials(values), self._hide_end)
        yield self.hide_specials(values)

    def hide_specials(self, values: object) -> object:
        """`values` with the first character of every whole special token masked."""
        pattern = re.compile(f"(?=(?:{'|'.join(map(re.escape, self._specials))}))(.)", re.DOTALL)
        return _map_strings(values, lambda text: pattern.sub(lambda match: self._masks[match[1]], text))

    def _hide_end(self, text: str) -> str:
        start = max(0, len(text) - len(self._specials[0]) + 1)
        end = list(text[start:])
        for i in range(len(end)):
            tail = text[start + i :]
            if any(special.startswith(tail) for special in self._specials):
                end[i] = self._masks[end[i]]
        return text[:start] + "".join(end)


def strings(values: object) -> Iterator[str]:
    """Every text in nested lists and mappings, keys included."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from strings(key)
            yield from strings(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from strings(value)


def _map_strings(values: object, change: Callable[[str], str]) -> object:
    """Nested lists and mappings with every text changed, except keys and roles that are plain words."""
    if isinstance(values, str):
        return change(values)
    if isinstance(values, Mapping):
        return {_word_or(key, change): _map_value(key, value, change) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_map_strings(value, change) for value in values]
    return values


def _map_value(key: object, value: object, change: Callable[[str], str]) -> object:
    return _word_or(value, change) if key == "role" else _map_strings(value, change)


def _word_or(value: object, change: Callable[[str], str]) -> object:
    return value if not isinstance(value, str) or value.isidentifier() else change(value)
