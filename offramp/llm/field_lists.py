"""Fields of an object that a caller wrote: each one is honoured, has no effect, or is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.params import refused, shown


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a known field can't be honoured, what to do instead, and values that ask for nothing (null never does)."""

    reason: str
    hint: str = "leave it out"
    neutral: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldLists:
    """The three lists of one kind of object."""

    honoured: frozenset[str]
    without_effect: frozenset[str]
    refused: Mapping[str, Refusal]

    def keep_honoured(self, values: Mapping[str, object], where: str = "") -> dict[str, object]:
        """The values to honour, nulls left out. Raises InvalidRequestError for a field that can't be."""
        kept = {}
        for name, value in values.items():
            path = f"{where}.{name}" if where else name
            if name in self.honoured:
                if value is not None:
                    kept[name] = value
            elif name in self.without_effect:
                continue
            elif name in self.refused:
                self._check_neutral(path, self.refused[name], value)
            else:
                known = f"known fields: {', '.join(sorted(self.honoured))}"
                raise InvalidRequestError(f"unknown field {path[:80]!r}", hint=known, param=path[:80])
        return kept

    def _check_neutral(self, path: str, refusal: Refusal, value: object) -> None:
        if value is not None and not any(value == one and type(value) is type(one) for one in refusal.neutral):
            raise InvalidRequestError(f"{path}={shown(value)}: {refusal.reason}", hint=refusal.hint, param=path)


def read_object(value: object, where: str, lists: FieldLists) -> dict[str, object]:
    """The honoured fields of what must be an object."""
    if not isinstance(value, Mapping):
        raise refused(where, value, "an object")
    return lists.keep_honoured(value, where)
