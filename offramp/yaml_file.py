"""YAML files that people write: one mapping, read strictly. JSON is YAML too."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from offramp.errors import InvalidRequestError

MAX_BYTES = 1 << 20


class _Loader(yaml.SafeLoader):
    """Off and no are words, as in YAML 1.2; a key that comes twice, an alias and an unknown tag are errors."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not read", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _firsts in (
    ("null", r"null|~|", "n~"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?(0|[1-9]\d*)", "-+0123456789"),
    ("float", r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|[-+]?\.inf|\.nan", "-+.0123456789"),
):
    _whole = re.compile(rf"({_pattern})\Z", re.ASCII)
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", _whole, [*_firsts, ""])


def read_mapping(path: Path, *, hint: str, param: str | None = None) -> dict[str, object]:
    """The mapping in a file. Raises InvalidRequestError, naming the file and the line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror}", hint=hint, param=param) from error
    if len(content) > MAX_BYTES:
        raise InvalidRequestError(f"{path} is longer than {MAX_BYTES} bytes", hint=hint, param=param)
    try:
        value: object = yaml.load(content.decode("utf-8"), _Loader)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidRequestError(f"{path}: {_reason(error)}", hint=hint, param=param) from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{path} is no mapping of names to values", hint=hint, param=param)
    return value


def _reason(error: Exception) -> str:
    """In one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__
