"""Every `offramp` command that the README and docs/ show is one that the command line takes. None is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from offramp.cli.app import USAGE_ERROR, build_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = "cli.md"  # from the command line itself
PROGRAM = typer.main.get_command(build_app())

UNFINISHED = ("MissingParameter", "BadOptionUsage", "NoArgsIsHelpError")
"""What is wrong with a command that lacks something, its last option's value perhaps."""

Command = tuple[str, str]
"""Where it stands, and its words."""


def shown(page: Path) -> list[Command]:
    """Whole commands: those of shell blocks, at a line's beginning or behind a pipe; lines that go on are joined."""
    commands, text = [], page.read_text(encoding="utf-8")
    for block in re.finditer(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(1)) + 1
        for each in re.finditer(r"(?:^|\| )(offramp(?: (?:\\\n|[^|\n])*)?)", block[1], re.MULTILINE):
            words = shlex.split(each[1].replace("\\\n", " "), comments=True)
            commands.append((f"{page.name}:{first + block[1].count(chr(10), 0, each.start(1))}", shlex.join(words)))
    return commands


def named(page: Path) -> list[Command]:
    """Commands within sentences, which may lack what they need, but have no option that isn't there."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [(page.name, " ".join(each.split())) for each in re.findall(r"`(offramp [^`]*)`", text)]


def check(words: str, *, whole: bool) -> None:
    """Parse a command as the program would; without `whole`, what is missing is forgiven."""
    command, args = PROGRAM, shlex.split(words)[1:]
    try:
        context = command.make_context("offramp", args)
        while isinstance(command, typer.core.TyperGroup):
            rest = [*context._protected_args, *context.args]
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None
            command, context = found, found.make_context(name, rest, parent=context)
    except Exception as error:
        if not isinstance(error, USAGE_ERROR):
            raise
        if whole or type(error).__name__ not in UNFINISHED:
            raise AssertionError(f"{words}: {error}") from error


ALL_SHOWN = [each for page in PAGES for each in shown(page)]
ALL_NAMED = [each for page in PAGES if page.name != GENERATED for each in named(page)]


def test_there_are_commands_to_check() -> None:
    assert len(ALL_SHOWN) > 20
    assert len(ALL_NAMED) > 10


@pytest.mark.parametrize(("where", "words"), ALL_SHOWN, ids=[where for where, _ in ALL_SHOWN])
def test_a_command_that_is_shown_is_taken(where: str, words: str) -> None:
    check(words, whole=True)


@pytest.mark.parametrize(("where", "words"), ALL_NAMED)
def test_a_command_in_a_sentence_has_real_options(where: str, words: str) -> None:
    check(words, whole=False)


@pytest.mark.parametrize("words", ["offramp serve -m m", "offramp calibrate m", "offramp bench stride", "offramp"])
def test_what_is_wrong_is_found(words: str) -> None:
    with pytest.raises(AssertionError):
        check(words, whole=True)


def test_commands_are_found_within_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    lines = [
        "text",
        "```sh",
        """echo "a" | offramp list --x '{"a b": 1}'  # why""",
        "make x",
        "offramp y \\",
        " -z",
        "```",
    ]
    page.write_text("\n".join(lines))
    assert shown(page) == [("page.md:3", "offramp list --x '{\"a b\": 1}'"), ("page.md:5", "offramp y -z")]
