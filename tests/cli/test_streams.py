"""Standard streams that are closed or full: two readable lines, the right exit code, nothing lost in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OFFRAMP = [sys.executable, "-m", "offramp"]


def redirected(redirection: str, *args: str, cache: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`offramp` with arguments, started by a shell with this redirection."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *OFFRAMP, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFRAMP_CACHE": str(cache)},
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_standard_output_is_an_error(toy_model: str, session_cache: Path, options: list[str]) -> None:
    args = ["generate", "hi", "-m", toy_model, "--max-tokens", "3", "--threads", "1", *options]
    done = redirected(">/dev/full", *args, cache=session_cache)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: can't write to standard output: No space left on device",
        "hint: free some space, or send it elsewhere",
    ]


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_also_for_what_the_parser_prints(session_cache: Path, option: str) -> None:
    done = redirected(">/dev/full", option, cache=session_cache)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
    assert "No space left on device" in done.stderr
    assert "internal error" not in done.stderr


def test_a_closed_standard_output_is_an_error(toy_model: str, session_cache: Path) -> None:
    done = redirected(">&-", "generate", "hi", "-m", toy_model, cache=session_cache)
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output is closed\nhint: ")


@pytest.mark.parametrize("args", [["generate", "-"], ["chat"]])
def test_a_closed_standard_input_is_an_error(toy_model: str, session_cache: Path, args: list[str]) -> None:
    done = redirected("<&-", *args, "-m", toy_model, cache=session_cache)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: standard input is closed\nhint: ")


def test_an_unreadable_standard_input_is_an_error(toy_model: str, session_cache: Path) -> None:
    done = redirected("0>/dev/null", "generate", "-", "-m", toy_model, cache=session_cache)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: can't read standard input: Bad file descriptor\nhint: ")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_without_standard_error_results_and_exit_codes_stay(
    toy_model: str, session_cache: Path, redirection: str
) -> None:
    """Notices don't end up among the data."""
    args = ["generate", "hi", "-m", toy_model, "--max-tokens", "3", "--threads", "1", "--json"]
    done = redirected(redirection, *args, cache=session_cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{"model": ')
    assert done.stdout.endswith("}\n")
    done = redirected(redirection, "generate", "hi", "-m", "no-such-model", cache=session_cache)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_script_learns_that_the_answers_of_a_chat_were_lost(toy_model: str, session_cache: Path) -> None:
    args = ["chat", "-m", toy_model, "--max-tokens", "3", "--threads", "1"]
    done = redirected(">/dev/full", *args, cache=session_cache, stdin="hello\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2] == "error: can't write to standard output: No space left on device"
