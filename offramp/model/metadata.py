"""Checked reading of named fields, from a JSON file or from GGUF metadata; knows no field names of its own."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import CorruptModelError, ModelNotFoundError

CORRUPT_HINT = "the file is damaged or not what it claims to be; fetch the model again"

MAX_INTEGER = 2**31 - 1
"""Counts and sizes above this are nonsense, whatever the field."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Named values of one source; getters check type and range, and errors name the field and `where` it stands.

    A value of None (JSON null) counts as absent. A getter without a default requires the field.
    """

    values: Mapping[str, object]
    where: str

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def error(self, name: str, wanted: str) -> CorruptModelError:
        """The error for a missing or impossible field."""
        if not self.has(name):
            return CorruptModelError(f"{self.where}: field {name!r} is missing", hint=f"it should hold {wanted}")
        shown = repr(self.values[name])[:80]
        return CorruptModelError(f"{self.where}: {name}={shown} is impossible", hint=f"{name} takes {wanted}")

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = MAX_INTEGER) -> int:
        if default is not None and not self.has(name):
            return default
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, f"an integer in [{low}, {high}]")
        return value

    def number(
        self, name: str, default: float | None = None, *, low: float = -math.inf, high: float = math.inf
    ) -> float:
        """A finite number in [low, high]."""
        if default is not None and not self.has(name):
            return default
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, "a number")
        number = _float(value)
        if not math.isfinite(number) or not low <= number <= high:
            raise self.error(name, f"a finite number in [{low:g}, {high:g}]")
        return number

    def flag(self, name: str, default: bool) -> bool:
        if not self.has(name):
            return default
        value = self.values[name]
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        if default is not None and not self.has(name):
            return default
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self.error(name, "a text")
        return value

    def group(self, name: str) -> Fields | None:
        """A nested object, or None if absent or empty."""
        if not self.has(name):
            return None
        value = self.values[name]
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return Fields(value, f"{self.where}: {name}") if value else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        values = self.values.get(name)
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
            raise self.error(name, "a list of numbers")
        numbers = tuple(_float(value) for value in values)
        if not all(math.isfinite(number) for number in numbers):
            raise self.error(name, "a list of finite numbers")
        return numbers

    def token_ids(self, name: str) -> tuple[int, ...]:
        """One id or a list of ids; absent gives none. Order kept, repeats dropped."""
        if not self.has(name):
            return ()
        value = self.values[name]
        ids = value if isinstance(value, list) else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i <= MAX_INTEGER for i in ids):
            raise self.error(name, "a token id or a list of them")
        return tuple(dict.fromkeys(ids))


def read_text(path: Path) -> str:
    """The text of a file. Raises ModelNotFoundError if unreadable, CorruptModelError if not UTF-8."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise ModelNotFoundError(f"can't read {path}: it is not an ordinary file", hint="check the path")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelNotFoundError(f"can't read {path}: {error.strerror}", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise CorruptModelError(f"{path} is not UTF-8 text", hint=CORRUPT_HINT) from error


def read_json(path: Path) -> Fields:
    """The object in a JSON file. Raises as `read_text` does, and CorruptModelError if it is not a JSON object."""
    return Fields(parse_json_object(read_text(path), str(path)), path.name)


def parse_json_object(text: str, where: str) -> dict[str, object]:
    """A JSON object without repeated keys; anything else raises CorruptModelError."""
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise CorruptModelError(f"{where} is not valid JSON: {error}", hint=CORRUPT_HINT) from error
    if not isinstance(value, dict):
        raise CorruptModelError(f"{where} holds a {type(value).__name__}, not an object", hint=CORRUPT_HINT)
    return value


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {repeated!r} appears twice")
    return result


def _float(value: int | float) -> float:
    """Infinity for an integer beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
