"""`offramp serve`: flags by the names users know, one line when it is ready, and exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from offramp import InvalidRequestError
from offramp.cli import serve as serve_module
from offramp.cli.foreign_flags import FOREIGN
from offramp.llm.model_flags import whole_number
from offramp.serve.listen import bind
from offramp.serve.settings import ServerSettings


@pytest.fixture
def process(toy_model: str, session_cache: Path) -> Iterator[subprocess.Popen[str]]:
    """A server of its own process on a free port, with a key in the environment."""
    command = [sys.executable, "-m", "offramp", "serve", toy_model, "--port", "0", "--served-model-name", "toy"]
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache), "OFFRAMP_API_KEY": "secret-key"}
    with subprocess.Popen(
        [*command, "--threads", "1", "--log-format", "json"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.kill()


def test_it_serves_until_it_is_told_to_stop(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    ready = process.stderr.readline()
    assert ready.startswith("offramp serves toy at http://127.0.0.1:")
    url = ready.split()[-1]
    assert httpx2.get(f"{url}/models").status_code == 401
    headers = {"authorization": "Bearer secret-key"}
    body = {"model": "toy", "messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3}
    answer = httpx2.post(f"{url}/chat/completions", json=body, headers=headers)
    assert answer.json()["usage"]["completion_tokens"] <= 3
    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    assert process.wait(10) == 0
    assert time.monotonic() - begun < 10
    told = process.stderr.read()
    assert '"route": "/v1/chat/completions"' in told
    assert "secret" not in told
    assert "finishing 0 requests; again to stop at once\n" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "port=70000"),
        (["--host", "no such host"], "host='no such host'"),
        (["--max-num-seqs", "many"], "--max-num-seqs='many'"),
        (["--max-num-seqs", "0"], "--max-num-seqs=0"),
        (["--max-model-len", "4.5K"], "--max-model-len='4.5K'"),
        (["--max-queue", "-1"], "--max-queue"),
        (["--max-body", "10"], "--max-body=10"),
        (["--request-timeout", "0"], "--request-timeout=0"),
        (["--drain-seconds", "-1"], "--drain-seconds=-1"),
        (["--mode", "calibrated"], "mode='calibrated'"),
        (["--draft", "telepathy"], "draft='telepathy'"),
        (["--draft-memory", "much"], "--draft-memory='much'"),
        (["--allowed-host", "box.lan:80"], "--allowed-host='box.lan:80'"),
        (["--log-format", "xml"], "--log-format='xml'"),
        (["--api-key", ""], "API key"),
        (["--isolate-keys"], "no API keys"),
        (["--served-model-name", ""], "--served-model-name"),
        (["--tool-call-parser", "qwen3_coder"], "--tool-call-parser='qwen3_coder'"),
    ],
)
def test_impossible_options_are_refused(
    offramp: Callable[..., Any], toy_model: str, options: list[str], message: str
) -> None:
    done = offramp("serve", toy_model, *options)
    assert done.code == 2, done.err
    assert message in done.err
    assert done.err.count("\n") == 2
    assert "hint: " in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ([], {"localhost", "127.0.0.1", "[::1]"}),
        (["--allowed-host", "Box.lan"], {"localhost", "127.0.0.1", "[::1]", "box.lan"}),
        (["--host", "127.0.0.2"], {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}),
        (["--host", "0.0.0.0"], set()),
        (["--api-key", "a"], set()),
        (["--api-key", "a", "--allowed-host", "box.lan"], {"localhost", "127.0.0.1", "[::1]", "box.lan"}),
    ],
)
def test_servers_without_keys_answer_to_their_own_names(
    offramp: Callable[..., Any], toy_model: str, monkeypatch: pytest.MonkeyPatch, options: list[str], allowed: set[str]
) -> None:
    started: list[ServerSettings] = []
    monkeypatch.setattr(serve_module, "run", lambda named, memory, settings, listener, specs: started.append(settings))
    assert offramp("serve", toy_model, "--port", "0", "--threads", "1", *options).code == 0
    assert [set(settings.allowed_hosts) for settings in started] == [allowed]


@pytest.mark.parametrize("option", FOREIGN)
def test_options_of_other_servers_have_a_hint(offramp: Callable[..., Any], option: str) -> None:
    done = offramp("serve", option, "1")
    assert done.code == 2
    assert done.err == f"error: there is no option {option}\nhint: {FOREIGN[option]}\n"


def test_hints_for_them_name_options_that_are_there(program: Any) -> None:
    own = {name for option in program.commands["serve"].params for name in option.opts}
    assert own & set(FOREIGN) == set()
    named = {name for hint in FOREIGN.values() for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", hint)}
    assert len(named) > 20
    assert named <= own


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["-ngl", "99"], "-ngl"),
        (["-c", "4096", "-ngl", "99"], "-c"),
        (["model.gguf", "--port", "0", "-c4096"], "-c"),
        (["--gpu-layers=99"], "--gpu-layers"),
    ],
)
def test_the_option_is_named_as_it_was_written(offramp: Callable[..., Any], args: list[str], named: str) -> None:
    assert offramp("serve", *args).err == f"error: there is no option {named}\nhint: {FOREIGN[named]}\n"


def test_other_unknown_options_lead_to_the_help(offramp: Callable[..., Any]) -> None:
    for command, option in (("serve", "--no-such-option"), ("serve", "-x"), ("generate", "-ngl")):
        assert "hint: see offramp " in offramp(command, option, "1").err


def test_a_missing_model_and_a_taken_port_are_failures(offramp: Callable[..., Any], toy_model: str) -> None:
    assert offramp("serve", "no-such-folder/model.gguf", "--port", "0").code == 1
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        done = offramp("serve", toy_model, "--port", str(listener.getsockname()[1]))
    assert done.code == 1
    assert "another --port" in done.err


def test_what_the_model_forbids_is_told_by_the_servers_own_flag(offramp: Callable[..., Any], toy_model: str) -> None:
    done = offramp("serve", toy_model, "--port", "0", "--max-model-len", "900K")
    assert (done.code, "--max-model-len=921600 is impossible" in done.err) == (2, True)
    done = offramp("serve", toy_model, "--port", "0", "--mode", "calibrated", "--risk", "0.1")
    assert "--exits=PACK" in done.err


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("4096", 4096), ("4k", 4000), ("4K", 4096), ("1m", 10**6), ("2M", 2 << 20)]
)
def test_numbers_may_have_multiples(text: str, number: int) -> None:
    assert whole_number("n", text) == number


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5K", "1 K", "1kk", "0x10", "\u0661", "9" * 40])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="n="):
        whole_number("n", text)
