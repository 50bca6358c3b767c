"""`offramp tune`: what can't be tried is refused at once, and a profile comes of whatever was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.bench.tune.run import Wish
from offramp.cli import tune as tune_module
from offramp.llm.profile_file import read_profile
from tests.bench.tune.simulated import FACTS, SimulatedStand, by_words

Offramp = Callable[..., Any]


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> list[Wish]:
    """What the stand was made for; suffix is faster there."""
    found: list[Wish] = []

    def stand(wish: Wish) -> SimulatedStand:
        found.append(wish)
        return SimulatedStand(by_words({"suffix": 1.3}), num_prompts=len(wish.items()), seconds=60 * wish.minutes)

    monkeypatch.setattr(tune_module, "_stand", stand)
    return found


def test_a_profile_and_a_line_of_json_come_of_it(
    offramp: Offramp, toy_model: str, tmp_path: Path, wishes: list[Wish]
) -> None:
    path = tmp_path / "mine.yaml"
    done = offramp("tune", toy_model, "-o", str(path))
    assert done.code == 0, done.err
    profile = read_profile(path)
    assert (profile.model, profile.source_hash) == (toy_model, FACTS.source_hash)
    assert profile.options == {"draft": "suffix"}
    assert (profile.trial.workload, profile.trial.num_prompts) == ("shipped", 60)
    [line] = done.out.splitlines()
    result = json.loads(line)
    assert (result["method"], result["profile"]) == ("suffix", str(path))
    assert result["gain"]["low"] > 1
    assert f"written to {path}" in done.err
    assert "trying auto, ngram, suffix\n" in done.err


def test_options_reach_the_search(offramp: Offramp, toy_model: str, tmp_path: Path, wishes: list[Wish]) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "one"}\n{"nothing": 1}\n{"prompt": "two"}\n')
    flags = ["--minutes", "3", "--streams", "2", "--max-tokens", "32", "--kv", "f32", "--threads", "1"]
    done = offramp("tune", toy_model, "--prompts", str(prompts), "-o", str(tmp_path / "p.yaml"), *flags)
    assert done.code == 0, done.err
    [wish] = wishes
    assert (wish.minutes, wish.max_tokens, wish.space.streams) == (3.0, 32, 2)
    assert (wish.space.common.kv, wish.space.common.threads) == ("f32", 1)
    assert [item.content for item in sorted(wish.items(), key=lambda item: str(item.content))] == ["one", "two"]
    assert f"note: 1 line of {prompts} left out; {prompts}, line 2 " in done.err
    assert offramp("tune", toy_model, "-o", str(tmp_path / "p.yaml"), "--drafter", "off").code == 0
    assert (wishes[1].space.drafter, wishes[1].space.common.drafter) == (None, "off")


def test_an_earlier_profile_is_replaced_and_nothing_else(
    offramp: Offramp, toy_model: str, tmp_path: Path, wishes: list[Wish]
) -> None:
    path = tmp_path / "p.yaml"
    assert offramp("tune", toy_model, "-o", str(path)).code == 0
    assert offramp("tune", toy_model, "-o", str(path), "--max-tokens", "8").code == 0
    assert read_profile(path).trial.max_tokens == 8
    path.write_text("threads: 1\n")
    done = offramp("tune", toy_model, "-o", str(path))
    assert (done.code, path.read_text(), len(wishes)) == (2, "threads: 1\n", 2)
    assert "is there, and no profile" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--minutes", "0"], "--minutes=0"),
        (["--minutes", "nan"], "--minutes=nan"),
        (["--streams", "0"], "--streams=0"),
        (["--streams", "1000"], "--streams=1000"),
        (["--streams", "4", "--limit", "3"], "--streams 4, and shipped has 3 prompts to run at once"),
        (["--max-tokens", "0"], "--max-tokens=0"),
        (["--limit", "0"], "--limit=0"),
        (["--threads", "0"], "--threads=0"),
        (["--weights", "q8,q5"], "--weights='q5'"),
        (["--weights", "q8,q8"], "names one twice"),
        (["--kv", "f8"], "--kv='f8'"),
        (["--risk", "0.05"], "needs an exit pack"),
        (["--risk", "2", "--exits", "smollm2-135m"], "--risk=2"),
        (["--risk", "0.05", "--exits", "smollm2-135m"], "has no calibration"),
        (["--exits", "nowhere"], "--exits='nowhere'"),
        (["--drafter", "nowhere"], "nowhere"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--raw"], "--raw without --prompts\nhint: name a file of your own, or leave --raw out"),
        (["-o", "nowhere/p.yaml"], "no folder that can be written"),
        (["-o", "/"], "is a folder"),
    ],
)
def test_what_can_not_be_tried_is_refused_at_once(
    offramp: Offramp, toy_model: str, tmp_path: Path, wishes: list[Wish], args: list[str], message: str
) -> None:
    output = [] if "-o" in args else ["-o", str(tmp_path / "p.yaml")]
    done = offramp("tune", toy_model, *args, *output)
    assert (done.code in (1, 2), done.out, wishes) == (True, "", []), done.err
    assert message in done.err
    assert "hint: " in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_is_a_failure(offramp: Offramp, tmp_path: Path, wishes: list[Wish]) -> None:
    done = offramp("tune", str(tmp_path / "gone.gguf"), "-o", str(tmp_path / "p.yaml"))
    assert (done.code, wishes) == (1, [])


def test_too_few_minutes_are_refused_with_how_many_it_takes(
    offramp: Offramp, toy_model: str, tmp_path: Path, wishes: list[Wish]
) -> None:
    done = offramp("tune", toy_model, "-o", str(tmp_path / "p.yaml"), "--minutes", "0.1")
    assert done.code == 2
    assert "trying 3 methods takes about 0." in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_writes_nothing(
    offramp: Offramp, toy_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(method: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_module, "_stand", lambda wish: SimulatedStand(never))
    done = offramp("tune", toy_model, "-o", str(tmp_path / "p.yaml"))
    assert (done.code, done.out) == (130, "")
    assert "no profile was written" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_model_is_tuned_and_served_as_the_profile_says(offramp: Offramp, toy_model: str, tmp_path: Path) -> None:
    """In real processes."""
    path = tmp_path / "p.yaml"
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {number}"}) + "\n" for number in range(6)))
    flags = ["--prompts", str(prompts), "--minutes", "4", "--max-tokens", "16", "--threads", "1"]
    done = offramp("tune", toy_model, "-o", str(path), *flags)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert all("fault" not in tried for tried in result["tried"].values()), result["tried"]
    profile = read_profile(path)
    assert profile.model == toy_model
    done = offramp("serve", "--profile", str(path), "--port", "0", "--max-model-len", "1M")
    assert "max-model-len" in done.err, "the model was found by the profile, and refused for its context"
