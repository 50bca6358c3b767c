"""What the package says of itself, and what a repository must not contain."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

OURS = {"offramp", "tests", "scripts", "benchmarks"}
FOLDERS = [".ci", "benchmarks", "csrc", "docs", "offramp", "scripts", "tests"]
PRIVATE = [
    r"/(work|root|home|tmp|opt)/[a-z]",
    r"https?://(?!(127\.0\.0\.1|localhost|www\.apache\.org|opensource\.org|github\.com|arxiv\.org|www\.w3\.org)\b)",
]


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return dict(tomllib.loads((root / "pyproject.toml").read_text())["project"])


def distributions(requirements: Iterable[str]) -> set[str]:
    """Names in their normal form; offramp[extra] is left out."""
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names} - {"offramp"}


def third_party(imports: Iterable[list[str]]) -> set[str]:
    """Distributions that provide what is imported; an import that nothing installed provides keeps its own name."""
    provided = packages_distributions()
    tops = {name.split(".")[0] for names in imports for name in names} - set(sys.stdlib_module_names) - OURS
    return distributions(provided.get(top, [top])[0] for top in tops)


def test_the_package_declares_what_it_imports(project: dict[str, Any], package_imports: dict[str, list[str]]) -> None:
    lean = [
        names for module, names in package_imports.items() if not module.startswith(("offramp.train", "offramp.bench"))
    ]
    assert third_party(lean) <= distributions(project["dependencies"])


def test_tests_declare_what_they_import(
    root: Path, project: dict[str, Any], tests_imports: dict[str, list[str]]
) -> None:
    extras = project["optional-dependencies"]
    beside = {path.stem for path in (root / "tests").rglob("*.py")} | {"conftest"}  # helpers that lie next to a test
    known = distributions([*project["dependencies"], *extras["test"], *extras["dev"], *extras["browser"]])
    assert third_party(tests_imports.values()) - beside <= known


def test_an_undeclared_import_is_found() -> None:
    assert third_party([["os.path", "offramp.core", "no_such_package.thing"]]) == {"no-such-package"}
    assert distributions(["offramp[test]", "Jinja2>=3.1", "huggingface_hub"]) == {"jinja2", "huggingface-hub"}


def test_run_time_needs_no_torch(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    light = distributions([*project["dependencies"], *extras["test"], *extras["bench"]])
    assert not light & {"torch", "transformers"}
    assert "torch" in distributions(extras["dev"]) & distributions(extras["train"])


def private_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(re.search(pattern, line) for pattern in PRIVATE)]


def test_no_private_paths_or_registry_hosts(root: Path) -> None:
    paths = [path for path in root.iterdir() if path.is_file()]
    paths += [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    found = []
    for path in paths:
        if (
            path == Path(__file__)
            or {"__pycache__", "results"} & set(path.parts)
            or path.suffix in {".npz", ".so", ".png"}
        ):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")  # weights too: they hold names
        found += [f"{path.relative_to(root)}: {line}" for line in private_lines(text)]
    assert found == []


def test_a_private_line_is_found() -> None:
    text = (
        "see /home/someone/x\nfine: /usr/share, ~/.cache, docs/cli.md\nfrom https://index.example/simple\n"
        "POST http://127.0.0.1:8000/v1/completions"
    )
    assert private_lines(text) == ["see /home/someone/x", "from https://index.example/simple"]
