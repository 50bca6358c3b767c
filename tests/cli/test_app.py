"""Help, errors and exit codes: data on stdout, two readable lines on stderr, tracebacks only on request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.cli import generate
from offramp.errors import NumericError

COMMANDS = ["bench", "chat", "generate", "inspect", "list", "pull", "remove"]
OFFRAMP = [sys.executable, "-m", "offramp"]


def test_help_names_the_commands_and_loads_no_engine() -> None:
    code = "import sys\nfrom offramp.cli.app import run\nrun(['--help'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert [name for name in COMMANDS if f"  {name} " not in done.stdout] == []
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "offramp.cli.generate" in loaded
    assert sorted({"numpy", "rich", "tokenizers", "offramp.core", "jinja2"} & loaded) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(offramp: Callable[..., Any], command: str) -> None:
    done = offramp(command, "--help")
    assert done.code == 0
    assert f"Usage: offramp {command}" in done.out


def test_version(offramp: Callable[..., Any]) -> None:
    done = offramp("--version")
    assert (done.code, done.out.split()[0]) == (0, "offramp")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["nosuch"], 2, "nosuch"),
        (["generate"], 2, "PROMPT"),
        (["generate", "x", "--nosuch"], 2, "--nosuch"),
        (["generate", "x", "--max-tokens", "many"], 2, "--max-tokens"),
        (["generate", "x", "--max-tokens", "0"], 2, "--max-tokens=0"),
        (["generate", "x", "--temperature", "nan"], 2, "temperature=nan"),
        (["generate", "x", "--top-p", "7"], 2, "--top-p=7.0"),
        (["generate", "x", "--stop", ""], 2, "stop=''"),
        (["generate", "x", "--system", "be brief"], 2, "--system needs --chat"),
        (["generate", "x", "--n", "2"], 2, "--n needs --json"),
        (["generate", "x", "--logprobs", "2"], 2, "--logprobs needs --json"),
        (["generate", "x", "-m", "nosuch-model"], 1, "nosuch-model"),
        (["chat", "--load", "nosuch.json"], 2, "nosuch.json"),
        (["chat", "--temperature", "-1"], 2, "temperature=-1.0"),
        (["chat", "--max-tokens", "many"], 2, "--max-tokens 'many'"),
        (["chat", "--max-tokens", "-5"], 2, "--max-tokens=-5"),
        (["pull", "nosuch-model"], 1, "nosuch-model"),
        (["remove", "smollm2-135m"], 1, "not in the cache"),
        (["remove", "--prepared", "smollm2-135m"], 1, "not in the cache"),
        (["remove"], 2, "remove takes a NAME"),
        (["inspect", "nosuch-model"], 1, "nosuch-model"),
        (["bench", "step", "--rows", "1,x"], 2, "--rows '1,x'"),
        (["bench", "step", "--context", "0"], 2, "--context 0"),
        (["bench", "step", "--seconds", "nan"], 2, "--seconds nan"),
    ],
)
def test_errors_are_two_lines(offramp: Callable[..., Any], args: list[str], code: int, message: str) -> None:
    done = offramp(*args)
    lines = done.err.splitlines()
    assert (done.code, done.out, len(lines)) == (code, "", 2), done.err
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert lines[1].startswith("hint: ")


def test_options_of_the_model_are_checked(offramp: Callable[..., Any], toy_model: str) -> None:
    for option, value in [("--weights", "q5"), ("--kv", "q8"), ("--threads", "0"), ("--max-context", "9999")]:
        done = offramp("generate", "x", "-m", toy_model, option, value)
        assert (done.code, done.out) == (2, "")
        assert value in done.err.splitlines()[0]


def test_too_long_a_prompt_is_a_usage_error(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("generate", "x" * 300, "-m", toy_model)
    assert done.code == 2
    assert "300 tokens" in done.err
    assert "256" in done.err


def test_a_truncated_model_is_refused(offramp: Callable[..., Any], toy_model: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(toy_model).read_bytes()[:-1])
    done = offramp("generate", "x", "-m", str(cut))
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 2)


@pytest.mark.parametrize("debug", [False, True])
def test_tracebacks_only_on_request(offramp: Callable[..., Any], debug: bool) -> None:
    done = offramp("generate", "x", "-m", "nosuch-model", *(["--debug"] if debug else []))
    assert done.code == 1
    assert ("Traceback" in done.err) is debug
    assert done.err.splitlines()[-2].startswith("error: ")


def test_a_bug_is_one_line_too(offramp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prompt: str) -> str:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(generate, "read_prompt", fail)
    done = offramp("generate", "x")
    assert (done.code, len(done.err.splitlines())) == (1, 2)
    assert "internal error: ZeroDivisionError: on purpose" in done.err


def test_ctrl_c_exits_with_130(offramp: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(generate, "read_prompt", interrupt)
    done = offramp("generate", "x")
    assert (done.code, done.out, done.err) == (130, "", "\n")


def test_a_model_error_exits_with_1(
    offramp: Callable[..., Any], toy_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise NumericError("the logits hold nan", hint="fetch the model again")

    monkeypatch.setattr("offramp.llm.llm.LLM.stream", fail)
    done = offramp("generate", "x", "-m", toy_model)
    assert (done.code, done.err) == (1, "error: the logits hold nan\nhint: fetch the model again\n")


def test_python_m_offramp_and_a_broken_pipe(toy_model: str, session_cache: Path) -> None:
    command = [*OFFRAMP, "generate", "hi", "-m", toy_model, "--ignore-eos", "--max-tokens", "200", "--threads", "1"]
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_ctrl_c_stops_a_running_answer(toy_model: str, session_cache: Path) -> None:
    command = [*OFFRAMP, "chat", "-m", toy_model, "--threads", "1"]
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"/set ignore_eos true\n/set max_tokens none\n/set\n")
        process.stdin.flush()
        assert process.stderr is not None
        assert process.stderr.readline() == b"ignore_eos=True\n"
        assert process.stderr.readline() == b"max_tokens=None\n"
        assert b"ignore_eos=True" in process.stderr.readline()
        time.sleep(0.2)  # back at reading a line
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"\n"
        assert process.stderr.readline() == b"Ctrl-D leaves\n"
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_text_goes_out_as_utf8_whatever_the_locale(toy_model: str, session_cache: Path) -> None:
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache), "PYTHONIOENCODING": "ascii"}
    args = [*OFFRAMP, "generate", "é世", "-m", toy_model, "--json", "--max-tokens", "60", "--ignore-eos"]
    done = subprocess.run(args, capture_output=True, timeout=60, check=True, env=environment)
    assert "\ufffd" in done.stdout.decode("utf-8")


def test_an_argument_that_is_not_utf8_is_refused(toy_model: str, session_cache: Path) -> None:
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache)}
    args: list[str | bytes] = [*OFFRAMP, "generate", b"a\xffb", "-m", toy_model]
    done = subprocess.run(args, capture_output=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"surrogate" in done.stderr
