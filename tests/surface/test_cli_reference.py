"""docs/cli.md says what `--help` says, of every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from offramp.cli.app import build_app
from scripts import cli_reference

NAMES = [name for name, _ in cli_reference.commands(typer.main.get_command(build_app()), "offramp")]


def help_of(name: str) -> str:
    result = CliRunner().invoke(build_app(), [*name.split()[1:], "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def section_of(page: str, name: str) -> str:
    [found] = [part for part in page.split("\n## ") if part.startswith(f"{name}\n")]
    return found


def long_options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def test_the_page_is_up_to_date() -> None:
    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.page(), "run make docs"


@pytest.fixture(scope="module")
def page() -> str:
    return cli_reference.page()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_every_option_of_help(page: str, name: str) -> None:
    section = section_of(page, name)
    shown = help_of(name)
    assert long_options(shown) - {"--help"} <= long_options(section)
    assert long_options(section) <= long_options(shown)


def test_the_commands_are_those_of_help() -> None:
    listed = help_of("offramp").split("Commands:")[1]
    assert re.findall(r"^  (\w+)", listed, re.MULTILINE) == [name.split()[1] for name in NAMES if name.count(" ") == 1]


def test_a_stale_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_reference, "PAGE", tmp_path / "cli.md")
    assert cli_reference.main(["--check"]) == 1
    assert cli_reference.main([]) == 0
    assert cli_reference.main(["--check"]) == 0
    cli_reference.PAGE.write_text(cli_reference.PAGE.read_text().replace("`--chat`", "`--talk`"))
    assert cli_reference.main(["--check"]) == 1
