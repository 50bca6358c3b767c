"""What one rendering of a chat template may spend: time, steps, the size of what it makes, and all of that together.

The size of a text, list or mapping counts what is shared each time it is met (`nested_size`), so that any one operation
on two values is cheap if its result is not larger than its operands; what can make more is asked about beforehand.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import islice, permutations
from string import Formatter
from typing import Any

from offramp.model.nesting import OBJECT, NestingError, nested_size

MAX_STEPS = 20_000_000  # template nodes that loops run, and calls times CALL_STEPS
CALL_STEPS = 10
ROOM = 65_536  # characters that a template may make of itself ...
GROWTH = 8  # ... and how often what it is given
MAX_MADE = 64_000_000  # characters, and list items times ITEM, that a rendering makes in all ...
REPEATS = 32  # ... and how often what it is given
ITEM = 2  # a pointer, in characters of 4 bytes
MAX_BITS = 64  # of an integer
MAX_NEEDLE = 256  # characters of a text searched for from the right, or of a set of characters to strip
MAX_SETTING = 99  # of an indent, or a number of digits
WIDE = re.compile(r"\d{4,}|\*")  # a width in a format string that no chat needs


class TemplateLimitError(Exception):
    """The template works too long or makes too much."""


class Budget:
    """What one rendering has left. `given` is the nested size of its variables, `deadline` a time.thread_time()."""

    def __init__(self, given: int, deadline: float) -> None:
        self._most = ROOM + GROWTH * given
        self._unmade = MAX_MADE + REPEATS * given
        self._steps = MAX_STEPS
        self._deadline = deadline

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0 or time.thread_time() > self._deadline:
            raise TemplateLimitError("the template runs too long")

    def loop(self, items: Iterable[Any], steps: int) -> Iterator[Any]:
        """What a loop runs over, each item paid for as its turn comes."""
        for item in items:
            self.spend(steps)
            yield item

    def make(self, value: Any) -> Any:
        """Pay for a value that holds no more than those it came from. Iterators and views become lists."""
        if isinstance(value, Iterator | KeysView | ValuesView | ItemsView):
            value = list(islice(value, self._most // OBJECT + 1))
        if isinstance(value, list | tuple):
            self.refuse_above(OBJECT * len(value))
        if isinstance(value, str | list | tuple | Mapping):
            self._unmade -= len(value) * (1 if isinstance(value, str) else ITEM)
            if self._unmade < 0:
                raise TemplateLimitError("the template makes too many texts and lists")
        return value

    def check(self, value: Any) -> Any:
        """Pay for any value, and refuse it if it is larger or deeper than any chat needs."""
        value = self.make(value)
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise TemplateLimitError("the template makes a number of too many digits")
        self.refuse_above(self.measure(value) - OBJECT)
        return value

    def measure(self, value: object) -> int:
        """The value's nested size, or something larger than is allowed."""
        try:
            return nested_size(value, self._most + OBJECT)
        except NestingError as error:
            raise TemplateLimitError(f"the template makes a list {error}") from error

    def refuse_above(self, size: int) -> None:
        if size > self._most:
            raise TemplateLimitError("the template makes a text or list that is too large")

    def before_operator(self, operator: str, left: Any, right: Any) -> None:
        """Refuse an operation that would make something huge."""
        if operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            self.refuse_above(self._factor(left) * self._factor(right))
        integers = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and integers and left.bit_length() * abs(right) > MAX_BITS:
            raise TemplateLimitError("the template makes a number of too many digits")
        if operator == "%" and isinstance(left, str):
            _check_width(left)
            fields = left.count("%") if isinstance(right, Mapping) else 1
            self.refuse_above(len(left) + fields * self.measure(right))

    def before_call(self, name: str, values: Sequence[Any]) -> None:
        """Pay for a call, and refuse it if it would make something huge or take long.

        `name` is a function's or method's, or a filter's with a bar before it; `values` are the arguments, first the
        text whose method it is.
        """
        self.spend(CALL_STEPS)
        match name:
            case "replace" | "|replace":
                text, *others = map(str, values) if values else [""]
                longest = max(((text.count(a) + 1) * len(b) for a, b in permutations(others, 2)), default=0)
                self.refuse_above(len(text) + longest)
            case "join" | "|join":
                between = values[:1] if name == "join" else map(str, values[1:])
                items = next(iter(values[1:] if name == "join" else values), ())
                self.refuse_above(self.measure(items) + _length(items) * max(map(_length, between), default=0))
            case "|indent":
                lines = len(str(values[0]).splitlines()) + 1
                self.refuse_above(lines * max(map(self._factor, values[1:]), default=0))
            case "format" | "format_map" | "|format" | "strftime_now" if values:
                self._before_format(name, str(values[0]), sum(map(self.measure, values[1:])))
            case "|sum" if any(isinstance(value, list | tuple) for value in values[1:]):
                raise TemplateLimitError("the template adds up lists")
        if name in SEARCHES and any(_length(value) > MAX_NEEDLE for value in values[1:]):
            raise TemplateLimitError(f"the template calls {name} with a text that is too long")
        if name in SETTINGS and any(isinstance(value, int) and abs(value) > MAX_SETTING for value in values[1:]):
            raise TemplateLimitError(f"the template calls {name} with a number that is too large")

    def _before_format(self, name: str, text: str, size: int) -> None:
        """`size` is that of the arguments: an upper limit of what one field writes."""
        _check_width(text)
        times = text.count("%")
        if name in ("format", "format_map"):
            fields = [(field, spec) for _, field, spec, _ in Formatter().parse(text) if field is not None]
            if any("{" in (spec or "") for _, spec in fields):
                raise TemplateLimitError(f"the template uses a computed width in the format {text[:40]!r}")
            times = max(Counter(re.split(r"[.\[]", field)[0] for field, _ in fields if field).values(), default=1)
        self.refuse_above(len(text) + times * size)

    def _factor(self, value: object) -> int:
        """How much a value can multiply another one by."""
        if isinstance(value, int):
            return abs(value)
        return self.measure(value) - OBJECT


SEARCHES = frozenset({"strip", "lstrip", "rstrip", "|trim", "rfind", "rindex", "rsplit", "rpartition"})
"""Whose time is a text's length times that of another."""
SETTINGS = frozenset({"|round", "|tojson"})
"""Whose numbers are exponents or widths."""


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def _check_width(text: str) -> None:
    if WIDE.search(text):
        raise TemplateLimitError(f"the template uses an extreme width in the format {text[:40]!r}")
