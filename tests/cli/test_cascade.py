"""`offramp calibrate --cascade` from end to end over two tiny models on disk, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offramp.collaborate.cascade.calibration import read_cascade
from offramp.llm import loading
from offramp.llm.loading import LoadedModel, load_model
from offramp.native.kv import page_bytes
from tests.cli.conftest import RunCommand
from tests.llm.test_draft_model import write_model
from tests.llm.writing import little_model


@pytest.fixture
def little(tmp_path: Path) -> str:
    return str(little_model(tmp_path))


@pytest.fixture
def asked(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"hello {n}", "reference": "x"}) + "\n" for n in range(40)))
    return str(path)


def test_a_cascade_is_calibrated_and_told(
    offramp: RunCommand, toy_model: str, little: str, asked: str, tmp_path: Path
) -> None:
    out = tmp_path / "cascade.json"
    out.write_text("{}")
    done = offramp(
        *("calibrate", toy_model, "--cascade", little, "--prompts", asked, "--risk", "0.2", "--risk", "0.99"),
        *("--delta", "0.1", "--max-tokens", "3", "--score", "quantile", "--temperature", "0.7", "--top-k", "5"),
        *("--seed", "3", "-o", str(out), "--threads", "1", "--weights", "q4", "--kv", "f32"),
    )
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    assert "10 prompts to choose thresholds, 30 to test them" in done.err
    assert f"{out} is replaced" in done.err
    assert "risk 0.2: not certified" in done.err, "random models say other things"
    assert "risk 0.99: loss " in done.err
    kept = read_cascade(out)
    assert (kept.score, kept.max_tokens, kept.sampling.temperature, kept.sampling.top_k) == ("quantile", 3, 0.7, 5)
    assert kept.model == load_model(little, threads=1).source_hash
    assert kept.big_model == load_model(toy_model, threads=1).source_hash
    assert kept.running is not None
    assert (kept.running.kv, kept.running.big_kv) == ("f32", "f32")
    for model, weights in ((little, kept.running.weights), (toy_model, kept.running.big_weights)):
        assert load_model(model, weights="q4", threads=1).formats_in_words == weights
    assert [entry.risk for entry in kept.thresholds.certified] == [0.99]
    provenance = json.loads(out.read_text())["provenance"]
    assert (provenance["loss"], provenance["little_name"], provenance["prompts"]["file"]) == (
        "rouge",
        little,
        "prompts.jsonl",
    )


def test_limits_are_for_both_models(
    offramp: RunCommand, toy_model: str, little: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(asked).open("a") as file:
        file.write(json.dumps({"prompt": "hello " * 60}) + "\n")
    real, loaded = loading.load_model, []

    def noted(name: str, **options: Any) -> LoadedModel:
        loaded.append(real(name, **options))
        return loaded[-1]

    monkeypatch.setattr(loading, "load_model", noted)
    done = offramp(
        *("calibrate", toy_model, "--cascade", little, "--prompts", asked, "--risk", "0.99", "--delta", "0.1"),
        *("--max-tokens", "3", "--max-context", "48", "--kv-memory", "1MiB", "--threads", "1"),
        *("-o", str(tmp_path / "x.json")),
    )
    assert done.code == 0, done.err
    assert done.err.count("1 prompt left out, as long as the context or longer") == 2, "once for each model"
    assert [each.max_context for each in loaded] == [48, 48]
    room = [2**20 // page_bytes(each.config, "f16") for each in loaded]
    assert [each.executor.num_pages for each in loaded] == room


def test_a_context_that_the_little_model_lacks_is_refused_by_its_name(
    offramp: RunCommand, toy_model: str, asked: str, tmp_path: Path
) -> None:
    short = str(write_model(tmp_path / "short.gguf", max_context=64))
    done = offramp(
        *("calibrate", toy_model, "--cascade", short, "--prompts", asked, "--risk", "0.5", "--max-context", "100"),
        *("--threads", "1", "-o", str(tmp_path / "x.json")),
    )
    assert done.code == 2
    assert f"max-context=100 is impossible, for --cascade {short}" in done.err
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("kind", ["--cascade", "--draft-model"])
def test_the_prompts_are_never_written_over(
    kind: str, offramp: RunCommand, toy_model: str, little: str, asked: str
) -> None:
    before = Path(asked).read_bytes()
    done = offramp("calibrate", toy_model, kind, little, "--prompts", asked, "--risk", "0.9", "-o", asked)
    assert done.code == 2
    assert "is the file of prompts" in done.err
    assert Path(asked).read_bytes() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--cascade", "L", "--draft-model", "M", "-o", "x.json"], "--draft-model beside --cascade"),
        (["--cascade", "L", "--exits", "P", "-o", "x.json"], "--exits beside --cascade"),
        (["--cascade", "L"], "a calibration of two models has no folder of its own"),
        (["--cascade", "L", "--fill", "deferred", "-o", "x.json"], "--fill deferred beside --cascade"),
        (["--cascade", "L", "--loss", "tokens", "-o", "x.json"], "loss='tokens' is impossible"),
        (["--cascade", "L", "--score", "mood", "-o", "x.json"], "score='mood' is impossible"),
        (["--draft-model", "L", "--score", "mean", "-o", "x.json"], "--score mean beside --draft-model"),
        (["--cascade", "L", "-o", "x.json", "--delta", "nan"], "delta=nan is impossible"),
        (["--cascade", "no-such-model", "-o", "x.json"], "no-such-model"),
        ([], "there is nothing to calibrate"),
    ],
)
def test_what_cannot_be_done_is_refused(
    offramp: RunCommand,
    toy_model: str,
    asked: str,
    args: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = offramp("calibrate", toy_model, "--prompts", asked, "--risk", "0.5", "--threads", "1", *args)
    assert done.code in (1, 2)
    assert message in done.err.splitlines()[0]
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [([], "has no usable prompts"), ([{"prompt": "a"}], "1 prompts are too few"), ([{"prompt": 5}], "line 1")],
)
def test_prompts_that_are_none_are_refused(
    offramp: RunCommand, toy_model: str, little: str, lines: list[object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = offramp(
        *("calibrate", toy_model, "--cascade", little, "--prompts", str(path), "--risk", "0.5"),
        *("-o", str(tmp_path / "x.json"), "--threads", "1"),
    )
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "x.json").exists()
