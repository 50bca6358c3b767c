"""The README tells the truth: its commands exist, its example runs, its tree is the tree."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from offramp.cli.app import build_app

PROGRAM = typer.main.get_command(build_app())
TREE = re.compile(r"^( *)(\S+)(?: {2,}(\S.*))?$")


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shell_commands(text: str) -> Iterator[list[str]]:
    """Every command in the shell blocks, pipes and comments taken apart."""
    for block in code_blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command: list[str] = []
            for word in shlex.split(line, comments=True):
                if word in ("|", "&&"):
                    yield command
                    command = []
                else:
                    command.append(word)
            yield command


def named_in_tree(text: str) -> dict[str, str]:
    """Path -> phrase, from the block of the section `The tree`; two spaces of indentation a level."""
    [block] = code_blocks(text.split("\n## The tree\n")[1].split("\n## ")[0], "text")
    found: dict[str, str] = {}
    folders: list[str] = []
    for line in block.splitlines():
        match = TREE.match(line)
        assert match, f"not a line of a tree: {line!r}"
        indent, name, phrase = match.groups()
        folders = [*folders[: len(indent) // 2], name]
        found["".join(folders).rstrip("/")] = phrase or ""
    return found


def test_make_commands_are_targets(root: Path, readme: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    wanted = [command[1:] for command in shell_commands(readme) if command[:1] == ["make"]]
    named = {word for words in wanted for word in words if "=" not in word}
    assert {"demo", "test"} <= named <= targets


def test_offramp_commands_parse(readme: str) -> None:
    examples = [command[1:] for command in shell_commands(readme) if command[:1] == ["offramp"]]
    assert len(examples) >= 4
    for words in examples:
        parse(PROGRAM, words)


def parse(command: object, words: list[str]) -> None:
    """As the program would, without running anything. Raises on an unknown command or option, or a missing argument."""
    while hasattr(command, "commands"):
        name = words[0] if words else ""
        assert name in command.commands, f"no such command: {name}"
        command, words = command.commands[name], words[1:]
    command.make_context("offramp", list(words))  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", [["generate", "--no-such-option", "x"], ["no-such-command"], ["generate"]])
def test_a_wrong_command_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing"):
        parse(PROGRAM, words)


def test_the_tree_is_true(root: Path, readme: str) -> None:
    named = named_in_tree(readme)
    assert [path for path in named if not (root / path).exists()] == []
    assert [path for path, phrase in named.items() if not phrase] == []
    modules = [path for path in (root / "offramp").rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    sources = [path for pattern in ("*.cpp", "*.h") for path in (root / "csrc").rglob(pattern)]
    pages = list((root / "docs").glob("*.md"))
    actual = {path.relative_to(root).as_posix() for path in [*modules, *sources, *pages]}
    assert sorted(actual - set(named)) == []


def test_a_wrong_tree_is_found() -> None:
    text = "# x\n\n## The tree\n\n```text\nofframp/     the package\n  core.py    nouns\n  model/     weights\n"
    text += "    gguf.py  files\ndocs/        pages\n```\n\n## More\n"
    assert list(named_in_tree(text)) == ["offramp", "offramp/core.py", "offramp/model", "offramp/model/gguf.py", "docs"]
    assert named_in_tree(text)["offramp/model/gguf.py"] == "files"


def test_links_lead_somewhere(root: Path) -> None:
    for page in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        local = [link for link in links if "://" not in link]
        assert [f"{page.name}: {link}" for link in local if not (page.parent / link).exists()] == []


@pytest.mark.real_model
def test_the_python_example_runs(root: Path, readme: str) -> None:
    [example] = code_blocks(readme, "python")
    assert len(example.strip().splitlines()) <= 12
    done = subprocess.run([sys.executable, "-c", example], cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 10
