"""docs/python.md names every option, field and error, with the defaults of the code, and stays short."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import offramp.errors
from offramp import LLM, CompletionOutput, Report, RequestOutput, SamplingParams, StreamDelta


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "python.md").read_text(encoding="utf-8")


def rows(page: str) -> dict[str, str]:
    """Name -> the default that the tables give; names of one row share a list of defaults; options come first."""
    found: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", page, re.MULTILINE):
        listed = re.findall(r"`(\w+)`", names)
        values = default.split(", ") if default.count(", ") == len(listed) - 1 else [default] * len(listed)
        found = dict(zip(listed, values, strict=True)) | found
    return found


def test_every_name_is_there(page: str) -> None:
    names = {name for kind in (CompletionOutput, Report, RequestOutput, SamplingParams) for name in field_names(kind)}
    names |= set(field_names(StreamDelta)) | set(offramp.errors.__all__)
    names |= set(inspect.signature(LLM.__init__).parameters) - {"self", "model"}
    assert sorted(name for name in names if not re.search(rf"`(?:\w+\()?{name}\b", page)) == []


def field_names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def test_the_defaults_are_those_of_the_code(page: str) -> None:
    listed = rows(page)
    for field in fields(SamplingParams):
        if isinstance(field.default, int | float):  # the others are told in words
            assert listed[field.name] == str(field.default), field.name
    for name, parameter in inspect.signature(LLM.__init__).parameters.items():
        if isinstance(parameter.default, int | str) and name != "model":
            shown = f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)
            assert listed[name].strip("`") == shown, name


def test_calls_are_those_of_the_class(page: str) -> None:
    for name, arguments in re.findall(r"^\| `(\w+)\(([^`]*)\)` \|", page, re.MULTILINE):
        parameters = list(inspect.signature(getattr(LLM, name)).parameters)[1:]
        assert [argument.split("=")[0] for argument in arguments.split(", ") if argument] == parameters


def test_it_is_short(page: str) -> None:
    assert len(page.splitlines()) <= 120
