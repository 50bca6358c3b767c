"""`tool_choice`: which of the functions may be called, and whether one must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.errors import InvalidRequestError
from offramp.llm.field_lists import FieldLists, read_object
from offramp.llm.tools import TOOL, check_type
from offramp.params import refused

TOOL_CHOICE = FieldLists(frozenset({"type", "function", "allowed_tools"}), frozenset(), {})
ALLOWED_TOOLS = FieldLists(frozenset({"mode", "tools"}), frozenset(), {})
CALLED = FieldLists(frozenset({"name"}), frozenset(), {})
MODES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Which functions may be called, and whether any must."""

    mode: str  # one of MODES
    names: tuple[str, ...] | None = None  # None: all
    single: bool = False  # one call, since one function was named
    place: str = "tool_choice"


def chat_choice(value: object, any_tools: bool) -> ToolChoice:
    if value is None:
        return ToolChoice(mode="auto" if any_tools else "none")
    if isinstance(value, str):
        return mode_of(value, "tool_choice", any_tools)
    kept = read_object(value, "tool_choice", TOOL_CHOICE)
    if kept.get("type") == "allowed_tools" and "function" not in kept:
        return _allowed(kept.get("allowed_tools"), "tool_choice.allowed_tools")
    check_type(kept, "tool_choice")
    if "allowed_tools" in kept:
        raise refused("tool_choice.allowed_tools", kept["allowed_tools"], 'the type "allowed_tools"')
    return named(kept.get("function"), "tool_choice.function")


def mode_of(value: object, where: str, any_tools: bool, modes: Sequence[str] = MODES) -> ToolChoice:
    """One of the modes by its name."""
    if not isinstance(value, str) or value not in modes:
        raise refused(where, value, f"{', '.join(modes)}, or a function")
    if value == "required" and not any_tools:
        raise InvalidRequestError(f"{where}='required' without tools", hint="give tools", param=where)
    return ToolChoice(mode=value if any_tools else "none")


def named(value: object, where: str) -> ToolChoice:
    """The one function that must be called."""
    kept = read_object(value, where, CALLED)
    return ToolChoice(mode="required", names=(name_in(kept, where),), single=True, place=f"{where}.name")


def _allowed(value: object, where: str) -> ToolChoice:
    """Some of the tools, of which any may be called, or one must."""
    kept = read_object(value, where, ALLOWED_TOOLS)
    listed = kept.get("tools")
    if not isinstance(listed, list) or not listed:
        raise refused(f"{where}.tools", listed, "a list of tools")
    names = []
    for index, each in enumerate(listed):
        place = f"{where}.tools[{index}]"
        inner = read_object(each, place, TOOL)
        check_type(inner, place)
        names.append(name_in(read_object(inner.get("function"), f"{place}.function", CALLED), f"{place}.function"))
    choice = mode_of(kept.get("mode"), f"{where}.mode", True, ("auto", "required"))
    return ToolChoice(mode=choice.mode, names=tuple(names), place=f"{where}.tools")


def name_in(kept: Mapping[str, object], where: str) -> str:
    name = kept.get("name")
    if not isinstance(name, str):
        raise refused(f"{where}.name", name, "the name of a tool")
    return name
