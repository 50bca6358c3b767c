"""The repository as text: its Python modules and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported_names(source: str, package: str) -> Iterator[str]:
    """Dotted names of everything a module imports, anywhere in it; relative ones are resolved against `package`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _imports_below(folder: Path) -> dict[str, list[str]]:
    """Module name -> what it imports, for every Python file below a folder of the repository."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if parts[-1] == "__init__" else ".".join(parts)
        found[name] = list(imported_names(path.read_text(encoding="utf-8"), package))
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def package_imports() -> dict[str, list[str]]:
    return _imports_below(ROOT / "offramp")


@pytest.fixture(scope="session")
def tests_imports() -> dict[str, list[str]]:
    return _imports_below(ROOT / "tests") | _imports_below(ROOT / "scripts")
