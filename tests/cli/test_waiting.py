"""The sign of life: shown late, on terminals only, and erased."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

import pytest

from offramp.cli import waiting
from offramp.cli.waiting import ReadingNotice

TEXT = "reading 4,482 tokens..."


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stderr_as_terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    """To be called by the test itself: pytest sets its own stderr after fixtures have run."""
    stream = FakeTerminal()
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def wait_for(stream: io.StringIO, text: str) -> None:
    end = time.monotonic() + 10
    while stream.getvalue() != text:
        assert time.monotonic() < end, repr(stream.getvalue())
        time.sleep(0.001)


def test_it_is_shown_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_as_terminal(monkeypatch)
    with ReadingNotice(4482, patience=0) as notice:
        wait_for(terminal, TEXT)
        for _ in range(2):
            notice.clear()
            assert terminal.getvalue() == f"{TEXT}\r{' ' * len(TEXT)}\r"
    assert terminal.getvalue().count("\r") == 2


def test_an_error_erases_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_as_terminal(monkeypatch)

    def fail() -> None:
        with ReadingNotice(1, patience=0):
            wait_for(terminal, "reading 1 token...")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert terminal.getvalue().endswith(" \r")


def test_who_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr_as_terminal(monkeypatch)
    with ReadingNotice(4482, patience=0.05) as notice:
        notice.clear()
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr("sys.stderr", stream)
        with ReadingNotice(4482, patience=0):
            time.sleep(0.01)
        assert stream is None or stream.getvalue() == ""


@pytest.mark.parametrize("command", [["generate", "hello"], ["chat"]])
def test_the_commands_show_it(
    offramp: Callable[..., Any],
    toy_model: str,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    terminal = stderr_as_terminal(monkeypatch)

    class Eager(ReadingNotice):
        def __init__(self, num_tokens: int) -> None:
            super().__init__(num_tokens, patience=0)

        def __enter__(self) -> Eager:
            super().__enter__()
            end = time.monotonic() + 10
            while "reading " not in terminal.getvalue():
                assert time.monotonic() < end
                time.sleep(0.001)
            return self

    for module in ("offramp.cli.generate", "offramp.cli.chat.session"):
        monkeypatch.setattr(f"{module}.ReadingNotice", Eager)
    done = offramp(*command, "-m", toy_model, "--max-tokens", "2", stdin=b"hello\n")
    assert done.code == 0
    shown, _, rest = terminal.getvalue().partition("...\r")
    assert shown.startswith("reading ")
    assert "output token" in rest
    assert waiting.PATIENCE == 1.0
