"""Commands run in this process, over a tiny model on disk."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from offramp.cli.app import build_app, run
from offramp.testing.models import write_chat_model


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Done]


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_chat_model(tmp_path_factory.mktemp("model") / "toy.gguf"))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def program() -> object:
    """The command line, parsed from its functions once: that takes longer than most commands."""
    return typer.main.get_command(build_app())


@pytest.fixture
def offramp(
    program: object, session_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunCommand:
    """Runs `offramp` with arguments and, if given, bytes on standard input."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(session_cache))
    monkeypatch.setattr("typer.main.get_command", lambda app: program)

    def command(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = run(args)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return command
