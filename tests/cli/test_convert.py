"""`offramp convert`, and its folder as the MODEL of the other commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp import LLM, SamplingParams
from offramp.testing.models import write_chat_model

GREEDY = SamplingParams(temperature=0, max_tokens=8)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_chat_model(tmp_path / "source.gguf")


def test_a_converted_model_stands_for_its_source(offramp: Callable[..., Any], source: Path, tmp_path: Path) -> None:
    asked = ("generate", "hello", "--max-tokens", "8", "--threads", "1", "--json", "-m")
    expected = json.loads(offramp(*asked, str(source)).out)
    target = tmp_path / "converted"
    done = offramp("convert", str(source), "-o", str(target))
    assert (done.code, done.out) == (0, f"{target}\n"), done.err
    assert done.err.startswith("converting source.gguf (0.")
    source.unlink()
    for model in (str(target), os.path.relpath(target)):
        answer = json.loads(offramp(*asked, model).out)
        assert answer["model"] == model
        assert answer["outputs"][0]["token_ids"] == expected["outputs"][0]["token_ids"]
    chatted = offramp("generate", "--chat", "hello", "--max-tokens", "3", "--threads", "1", "-m", str(target))
    assert chatted.code == 0, chatted.err
    assert offramp("pull", str(target)).out == f"{target}\n"
    timed = offramp("bench", "step", "-m", str(target), "--rows", "1", "--seconds", "0.001", "--context", "40")
    assert json.loads(timed.out)["weights"] == {"q8": 4 * 7 + 1}


def test_nothing_is_prepared_in_the_cache(
    offramp: Callable[..., Any], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("OFFRAMP_CACHE", str(cache))
    assert offramp("convert", str(source), "-o", str(tmp_path / "converted"), "--weights", "q4").code == 0
    with LLM(str(tmp_path / "converted"), threads=1, draft="off") as llm:
        assert (llm.model.weights, llm.model.formats) == ("q4", {"q4": 4 * 7, "q8": 1})
        assert len(llm.generate("hello", GREEDY)[0].outputs[0].token_ids) == 8
    assert not (cache / "prepared").exists()


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (("--weights", "q5"), 2, "weights='q5'"),
        (("-o", "{tmp}"), 2, "is not empty"),
        (("-o", "{tmp}/no/folder"), 2, "is no folder"),
        ((), 2, "Missing option '--output'"),
    ],
)
def test_refusals(
    offramp: Callable[..., Any], source: Path, tmp_path: Path, args: tuple[str, ...], code: int, named: str
) -> None:
    words = [word.format(tmp=tmp_path) for word in args]
    if "--weights" in words:
        words += ["-o", str(tmp_path / "converted")]
    done = offramp("convert", str(source), *words)
    assert (done.code, done.out) == (code, "")
    assert named in done.err
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_what_can_not_be_run_is_not_converted(offramp: Callable[..., Any], source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes()[:-1])
    done = offramp("convert", str(source), "-o", str(tmp_path / "converted"))
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_a_format_that_it_can_not_give_is_refused(offramp: Callable[..., Any], source: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "converted")
    assert offramp("convert", str(source), "-o", target).code == 0
    assert offramp("generate", "hello", "-m", target, "--weights", "q8", "--max-tokens", "1").code == 0
    done = offramp("generate", "hello", "-m", target, "--weights", "f32")
    assert (done.code, done.out) == (2, "")
    assert f"weights='f32' can't be had from {target}: it was converted to 29 matrices of q8" in done.err
    assert "convert source.gguf again with --weights f32" in done.err


def test_a_converted_model_is_not_converted_again(offramp: Callable[..., Any], source: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "converted")
    assert offramp("convert", str(source), "-o", target).code == 0
    done = offramp("convert", target, "-o", str(tmp_path / "again"))
    assert (done.code, done.out) == (2, "")
    assert "is converted already" in done.err
    assert "source.gguf" in done.err
