"""`__all__` is sorted and true, and the version is one."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

import offramp


def test_all_is_sorted_and_true(package_imports: dict[str, list[str]]) -> None:
    modules = [importlib.import_module(name) for name in package_imports if not name.startswith("offramp.train")]
    listing = {module.__name__: list(module.__all__) for module in modules if hasattr(module, "__all__")}
    assert {"offramp", "offramp.errors"} <= set(listing)
    assert listing["offramp"] == sorted(listing["offramp"])  # elsewhere the linter's order holds
    for module, names in listing.items():
        assert len(names) == len(set(names)), module
        assert [name for name in names if not hasattr(sys.modules[module], name)] == [], module


def test_the_front_door() -> None:
    assert {"LLM", "OfframpError", "RequestOutput", "SamplingParams"} <= set(offramp.__all__)
    assert set(offramp.__all__) <= set(dir(offramp))


def test_nothing_public_is_missing_from_all() -> None:
    public = {name for name, value in vars(offramp).items() if not name.startswith("_") and not _is_module(value)}
    assert public - {"annotations", "TYPE_CHECKING"} <= set(offramp.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = offramp.no_such_name


def test_version_is_that_of_the_metadata(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert offramp.__version__ == project["version"]


def _is_module(value: object) -> bool:
    return type(value).__name__ == "module"
