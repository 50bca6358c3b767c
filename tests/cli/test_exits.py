"""Early exits on the command line: options, statistics, and what `inspect` tells of a pack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.llm.exiting import DEPTH, certified, toy_pack

Offramp = Callable[..., Any]


@pytest.fixture
def pack(toy_model: str, tmp_path: Path, offramp: Offramp) -> Path:
    """Calibrated; after `offramp` has set the cache folder."""
    folder = toy_pack(tmp_path / "mine", Path(toy_model))
    certified(Path(toy_model), folder, 0.02, 0.1)
    return folder


@pytest.fixture
def generate(offramp: Offramp, toy_model: str, pack: Path) -> Offramp:
    def run(*args: str) -> Any:
        common = ("generate", "hello", "-m", toy_model, "--threads", "1", "--max-tokens", "12", "--ignore-eos")
        return offramp(*common, "--exits", str(pack), *args)

    return run


def test_generate_says_how_deep_tokens_ran(generate: Offramp) -> None:
    done = generate("--mode", "unchecked", "--exit-threshold", "1:0")
    assert done.code == 0, done.err
    assert f", {(DEPTH + 11) / 12:.1f} layers a token, " in done.err
    assert "layers a token" not in generate().err


def test_a_pack_without_a_mode_that_uses_it_is_noted(generate: Offramp) -> None:
    for mode in ("lossless", "full"):
        notes = [line for line in generate("--mode", mode).err.splitlines() if line.startswith("note: ")]
        [note] = notes
        assert note.startswith(f"note: mode {mode} runs all layers of every token, and --exits")
        assert ("drafts where that pays" in note) == (mode == "lossless")
        assert ("changes nothing" in note) == (mode == "full")
        assert note.endswith("unchecked with an --exit-threshold, or --draft early_exit")
    assert "note: " not in generate("--mode", "calibrated", "--risk", "0.1").err
    assert "note: " not in generate("--draft", "early_exit").err


def test_a_server_notes_it_too(offramp: Offramp, toy_model: str, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.cli.serve.run", lambda *args: None)
    serve = ("serve", toy_model, "--port", "0", "--threads", "1", "--exits", str(pack))
    done = offramp(*serve)
    assert (done.code, done.err.count("note: mode lossless runs all layers")) == (0, 1), done.err
    assert "requests that ask for mode calibrated or unchecked, or draft early_exit" in done.err
    assert "note: " not in offramp(*serve, "--mode", "calibrated", "--risk", "0.1").err
    assert "note: " not in offramp(*serve, "--draft", "early_exit").err


def test_json_tells_mode_risk_and_depth(generate: Offramp) -> None:
    report = json.loads(generate("--mode", "calibrated", "--risk", "0.05", "--json").out)["report"]
    assert (report["mode"], report["risk"], report["exits"], report["mode_reason"]) == (
        "calibrated",
        0.02,
        "mine",
        None,
    )
    assert report["mean_exit_layer"] == pytest.approx((DEPTH + 33) / 12)


def test_json_has_no_infinity(offramp: Offramp, toy_model: str, tmp_path: Path) -> None:
    folder = toy_pack(tmp_path / "few", Path(toy_model), vocab_ids=np.arange(40, 50, dtype=np.int32))
    exits = ("--exits", str(folder), "--mode", "unchecked", "--exit-threshold", "0", "--logprobs", "20", "--json")
    done = offramp("generate", "hello", "-m", toy_model, "--max-tokens", "3", *exits)
    [choice] = json.loads(done.out, parse_constant=lambda name: pytest.fail(name))["outputs"]
    assert {token for token, logprob in choice["logprobs"][1]["top"] if logprob > -9999} == set(range(40, 50))


def test_full_depth_for_want_of_a_certificate_is_explained(generate: Offramp) -> None:
    done = generate("--mode", "calibrated", "--risk", "0.05", "--temperature", "0.5", "--seed", "1")
    assert done.err.endswith("(all layers ran: temperature=0.5 differs from the calibration's 0)\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--mode", "calibrated"], "--mode='calibrated' needs a risk"),
        (["--mode", "calibrated", "--risk", "nan"], "--risk=nan is impossible"),
        (["--mode", "calibrated", "--risk", "0.01"], "--risk=0.01 is not certified"),
        (["--mode", "unchecked"], "--mode='unchecked' needs thresholds"),
        (["--mode", "unchecked", "--exit-threshold", "7:0.5"], "--exit-threshold='layer 7' is impossible"),
        (["--mode", "unchecked", "--exit-threshold", "nan"], "--exit-threshold=nan is impossible"),
        (
            ["--mode", "unchecked", "--exit-threshold", "0.5", "--draft", "ngram"],
            "--draft='ngram': mode unchecked runs no drafts",
        ),
        (["--exit-batching", "literal"], "--exit-batching='literal' is impossible"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "serve", "chat"])
def test_impossible_options_are_refused(
    offramp: Offramp, toy_model: str, pack: Path, command: str, args: list[str], message: str
) -> None:
    model = [toy_model, "--port", "0"] if command == "serve" else ["-m", toy_model]
    done = offramp(command, *model, *(["x"] if command == "generate" else []), "--exits", str(pack), *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}"), done.err
    assert "\nhint: " in done.err


def test_chat_takes_the_same_options(offramp: Offramp, toy_model: str, pack: Path) -> None:
    certified(Path(toy_model), pack, 0.1, ignore_eos=False)
    args = ["--exits", str(pack), "--mode", "calibrated", "--risk", "0.1", "--temperature", "0", "--max-tokens", "5"]
    done = offramp("chat", "-m", toy_model, *args, stdin=b"hello\n")
    assert done.code == 0
    assert "layers a token, " in done.err
    args = ["--exits", str(pack), "--mode", "calibrated", "--risk", "0.1", "--temperature", "0", "--max-tokens", "0"]
    assert "(all layers ran: max_tokens=the rest" in offramp("chat", "-m", toy_model, *args, stdin=b"hello\n").err


def test_inspect_shows_a_pack(offramp: Offramp, toy_model: str, pack: Path) -> None:
    [facts] = json.loads(offramp("inspect", toy_model, "--exits", str(pack), "--json").out)["packs"]
    assert (facts["name"], facts["kind"], facts["layers"], facts["vocabulary"]) == ("mine", "shared", [1, 2, 3], None)
    assert [(entry["risk"], entry["depth"], entry["gain"]) for entry in facts["calibration"]] == [
        (0.02, 2.5, 1.2),
        (0.1, 2.5, 2.2),
    ]
    lines = offramp("inspect", toy_model, "--exits", str(pack)).out.splitlines()
    shown = lines[lines.index("exit pack:") :]
    assert "  kind: shared" in shown
    assert any(line.startswith("    risk 0.02, delta 0.05, loss tokens, ") for line in shown)


def test_inspect_refuses_a_pack_of_another_model(offramp: Offramp, toy_model: str, pack: Path) -> None:
    config = json.loads((pack / "config.json").read_text())
    (pack / "config.json").write_text(json.dumps({**config, "model": "0" * 64}))
    done = offramp("inspect", toy_model, "--exits", str(pack))
    assert done.code == 2
    assert "belongs to toy with the tensor hash 0000" in done.err


def test_inspect_says_when_there_is_no_pack(offramp: Offramp, toy_model: str, tmp_path: Path) -> None:
    done = offramp("inspect", toy_model, "--exits", str(tmp_path / "none"))
    assert (done.code, done.out) == (1, "")
    assert "no exit pack" in done.err
