"""A little model that writes, on the command line: generate, serve, and its calibration from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.calibrate.little_candidates import PairCosts
from offramp.collaborate.big_little_certificate import read_pairs
from tests.llm.writing import little_model

Offramp = Callable[..., Any]
COSTS = PairCosts(round=0.1, verify=lambda num_rows: 1.0 + 0.02 * num_rows)


@pytest.fixture
def little(tmp_path: Path) -> str:
    return str(little_model(tmp_path))


@pytest.fixture
def generate(offramp: Offramp, toy_model: str, little: str) -> Offramp:
    def run(*args: str) -> Any:
        common = ("generate", "hello", "-m", toy_model, "--threads", "1", "--max-tokens", "12", "--ignore-eos")
        return offramp(*common, "--draft-model", little, *args)

    return run


def test_generate_says_who_wrote(generate: Offramp, little: str) -> None:
    done = generate("--mode", "unchecked", "--little-rollback", "1000000", "--little-fallback", "0", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)["report"]
    assert (report["mode"], report["little"]) == ("unchecked", little)
    assert report["num_little_tokens"] == 11, "ten, then a word of the big one's, then one more"
    done = generate("--mode", "unchecked", "--little-rollback", "3", "--max-little", "4")
    assert f" written by {little}, " in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--little-rollback", "3"], "--little-rollback has nothing to do in mode lossless"),
        (["--mode", "unchecked", "--little-rollback", "nan"], "--little-rollback=nan is impossible"),
        (["--mode", "unchecked", "--little-rollback", "-1"], "--little-rollback=-1.0 is impossible"),
        (["--mode", "unchecked", "--little-fallback", "0.5"], "--little-fallback needs --little-rollback"),
        (["--mode", "unchecked"], "--draft-model"),
        (
            ["--mode", "calibrated", "--risk", "0.1", "--little-calibration", "none"],
            "--little-calibration='none' is no",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_flag(generate: Offramp, args: list[str], message: str) -> None:
    done = generate(*args)
    assert done.code == 2
    assert message in done.err.splitlines()[0]


def test_a_server_takes_the_same_flags_for_all_or_for_one(
    offramp: Offramp, toy_model: str, little: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[Any] = []
    monkeypatch.setattr("offramp.cli.serve.run", lambda models, *args: named.extend(models))
    raw = ("--mode", "unchecked", "--little-rollback", "3", "--max-little", "5")
    done = offramp("serve", toy_model, "--port", "0", "--draft-model", little, *raw)
    assert done.code == 0, done.err
    config = tmp_path / "models.json"
    smart = {"model": toy_model, "draft_model": little, "mode": "unchecked", "little_rollback": 3, "max_little": 5}
    config.write_text(json.dumps({"smart": smart, "plain": {"model": toy_model}}))
    done = offramp("serve", "--port", "0", "--models-config", str(config))
    assert done.code == 0, done.err
    one, smart_one, plain = (each.start.serving.little for each in named)
    assert one == smart_one
    assert (one.rollback, one.max_run, one.policy.fallback) == (3, 5, 0.6)
    assert plain.given is None
    config.write_text(json.dumps({"smart": smart | {"little_rollback": "3"}}))
    assert "little-rollback='3' is impossible" in offramp("serve", "--port", "0", "--models-config", str(config)).err


@pytest.fixture
def asked(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"hello {n}"}) + "\n" for n in range(60)))
    return str(path)


def test_what_is_certified_is_what_mode_calibrated_runs(
    offramp: Offramp,
    generate: Offramp,
    toy_model: str,
    little: str,
    asked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("offramp.calibrate.little_run._PairWork._costs", lambda *args: COSTS)
    monkeypatch.setattr("offramp.calibrate.walk.measured_gain", lambda *args: 2.0)
    out = tmp_path / "mine.json"
    pair = ("calibrate", toy_model, "--draft-model", little, "--prompts", asked, "--threads", "1")
    done = offramp(*pair, "--risk", "0.9", "--delta", "0.1", "--max-tokens", "12", "--ignore-eos", "-o", str(out))
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    assert "15 prompts to choose policies, 45 to test them" in done.err
    assert f"of the tokens by {little}, " in done.err
    [entry] = read_pairs(out)
    assert (entry.risk, entry.max_tokens, entry.measured.num_prompts) == (0.9, 12, 45)
    assert 0 < entry.little_share <= 1
    words = ("--mode", "calibrated", "--risk", "0.9", "--little-calibration", str(out), "--json")
    answer = generate(*words)
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)["report"]
    assert (report["mode"], report["risk"], report["little"]) == ("calibrated", 0.9, little)
    assert report["num_little_tokens"] > 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "there is nothing to calibrate"),
        (["--draft-model", "LITTLE"], "has no folder of its own"),
        (["--draft-model", "LITTLE", "--exits", "p", "-o", "x"], "--exits beside --draft-model"),
        (["--draft-model", "LITTLE", "--fill", "deferred", "-o", "x"], "--fill deferred beside --draft-model"),
    ],
)
def test_calibrate_takes_one_of_the_two(
    offramp: Offramp, toy_model: str, little: str, asked: str, args: list[str], message: str
) -> None:
    words = [little if word == "LITTLE" else word for word in args]
    done = offramp("calibrate", toy_model, "--prompts", asked, "--risk", "0.5", *words)
    assert done.code == 2
    assert message in done.err.splitlines()[0]
