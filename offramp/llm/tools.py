"""The functions that a caller offers, as OpenAI writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.llm.field_lists import FieldLists, read_object
from offramp.params import refused

TOOL = FieldLists(frozenset({"type", "function"}), frozenset(), {})
FUNCTION = FieldLists(frozenset({"name", "description", "parameters", "strict"}), frozenset(), {})
MAX_TOOLS = 128
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
NAME_HINT = "1 to 128 letters, digits, and _ - . :"
NO_ARGUMENTS: Mapping[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of the caller's."""

    name: str
    description: str | None
    parameters: Mapping[str, object] | None  # JSON schema; None: it takes none
    strict: bool
    place: str  # of the parameters

    @property
    def schema(self) -> Mapping[str, object]:
        """Of its arguments."""
        return NO_ARGUMENTS if self.parameters is None else self.parameters

    def for_template(self) -> dict[str, object]:
        """As OpenAI writes it, and models saw it in training."""
        function: dict[str, object] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = dict(self.schema)
        return {"type": "function", "function": function}


def chat_tools(tools: Sequence[object] | None, *, bare: bool = False) -> tuple[Tool, ...]:
    """In the shape of chat, {"type": "function", "function": {...}}; with `bare`, a function may also stand alone."""
    if tools is not None and (isinstance(tools, str | bytes) or not isinstance(tools, Sequence)):
        raise refused("tools", tools, "a list of tools")
    return distinct_tools([_chat_tool(each, f"tools[{index}]", bare) for index, each in enumerate(tools or ())])


def _chat_tool(value: object, where: str, bare: bool) -> Tool:
    if bare and isinstance(value, Mapping) and "name" in value:
        return function_of(value, where)
    kept = read_object(value, where, TOOL)
    check_type(kept, where)
    return function_of(kept.get("function"), f"{where}.function")


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
    assert parameters is None or isinstance(parameters, Mapping)
    return Tool(name=name, description=description, parameters=parameters, strict=strict, place=place)


def _check_parameters(parameters: object, place: str) -> None:
    if not isinstance(parameters, Mapping):
        raise refused(place, parameters, "a JSON schema")
    if parameters.get("type", "object") != "object":
        raise refused(f"{place}.type", parameters["type"], '"object": arguments have names')
    if not isinstance(parameters.get("properties", {}), Mapping):
        raise refused(f"{place}.properties", parameters["properties"], "an object: names and their schemas")
    try:
        json.dumps(parameters, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{place} can't be written as JSON: {error!s:.100}"
        raise InvalidRequestError(message, hint="give a JSON schema", param=place) from None


def check_type(kept: Mapping[str, object], where: str) -> None:
    if kept.get("type") != "function":
        raise refused(f"{where}.type", kept.get("type"), '"function"')
