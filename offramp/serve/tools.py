"""The functions that a client offers, as a body names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.params import refused
from offramp.serve.fields import FUNCTION, TOOL, FieldLists

MAX_TOOLS = 128
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
NAME_HINT = "1 to 128 letters, digits, and _ - . :"
NO_ARGUMENTS: Mapping[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the client's."""

    name: str
    description: str | None
    parameters: Mapping[str, object] | None  # JSON schema; None: it takes none
    strict: bool
    place: str  # of the parameters

    def for_template(self) -> dict[str, object]:
        """As OpenAI writes it, and models saw it in training."""
        function: dict[str, object] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = dict(NO_ARGUMENTS if self.parameters is None else self.parameters)
        return {"type": "function", "function": function}


def chat_tools(tools: Sequence[object] | None) -> tuple[Tool, ...]:
    """In the shape of chat: {"type": "function", "function": {...}}."""
    values = []
    for index, each in enumerate(tools or ()):
        where = f"tools[{index}]"
        kept = read_object(each, where, TOOL)
        check_type(kept, where)
        values.append((kept.get("function"), f"{where}.function"))
    return distinct_tools([function_of(value, where) for value, where in values])


def distinct_tools(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Refuses too many, and names given twice."""
    if len(tools) > MAX_TOOLS:
        raise refused("tools", f"{len(tools)} tools", f"at most {MAX_TOOLS}")
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            hint = "give each tool a name of its own"
            place = tool.place.removesuffix(".parameters") + ".name"
            raise InvalidRequestError(f"two tools are called {tool.name!r}", hint=hint, param=place)
        seen.add(tool.name)
    return tuple(tools)


def function_of(value: object, where: str, lists: FieldLists = FUNCTION) -> Tool:
    """One function's fields, which lie in the object `value`."""
    kept = read_object(value, where, lists)
    name, description, parameters = kept.get("name"), kept.get("description"), kept.get("parameters")
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        raise refused(f"{where}.name", name, NAME_HINT)
    if description is not None and not isinstance(description, str):
        raise refused(f"{where}.description", description, "a string")
    strict = kept.get("strict", False)
    if not isinstance(strict, bool):
        raise refused(f"{where}.strict", strict, "a boolean")
    place = f"{where}.parameters"
    if parameters is not None:
        _check_parameters(parameters, place)
    assert parameters is None or isinstance(parameters, dict)
    return Tool(name=name, description=description, parameters=parameters, strict=strict, place=place)


def read_object(value: object, where: str, lists: FieldLists) -> dict[str, object]:
    """The honoured fields of an object."""
    if not isinstance(value, dict):
        raise refused(where, value, "an object")
    return lists.keep_honoured(value, where)


def _check_parameters(parameters: object, place: str) -> None:
    if not isinstance(parameters, dict):
        raise refused(place, parameters, "a JSON schema")
    if parameters.get("type", "object") != "object":
        raise refused(f"{place}.type", parameters["type"], '"object": arguments have names')
    if not isinstance(parameters.get("properties", {}), dict):
        raise refused(f"{place}.properties", parameters["properties"], "an object: names and their schemas")


def check_type(kept: Mapping[str, object], where: str) -> None:
    if kept.get("type") != "function":
        raise refused(f"{where}.type", kept.get("type"), '"function"')
