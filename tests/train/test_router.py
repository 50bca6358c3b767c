"""`offramp train router`: data read or refused, and a pack whose figures come from prompts that it never saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.collaborate.router.pack_file import read_router
from offramp.errors import InvalidRequestError
from offramp.exits.certificate import SamplingSettings
from offramp.llm.loading import load_model
from offramp.llm.running_of import model_running
from offramp.train.router import states
from offramp.train.router.data import read_outcomes
from offramp.train.router.recipe import Recipe
from offramp.train.router.run import split, train_router

SHORT = {"kind": "linear", "depths": (2,)}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    """Prompts that end in `hard` need the strong model, one in ten aside."""
    rng = np.random.default_rng(4)
    words = ["hard" if hard else "easy" for hard in rng.random(120) < 0.5]
    rows = [
        {"prompt": f"{n} is {word}", "weak_correct": (word == "easy") ^ (n % 10 == 0), "strong_correct": True}
        for n, word in enumerate(words)
    ]
    return write(tmp_path / "outcomes.jsonl", rows)


def train(
    model: str, data: Path, output: Path, said: list[str] | None = None, *, kv: str = "f16", **settings: Any
) -> Any:
    if settings.get("risks"):
        settings = {"sampling": SamplingSettings(), **settings}
    recipe = Recipe(**{**SHORT, **settings})
    say = (said if said is not None else []).append
    work = output.with_name("work")
    return train_router(model, data, output, recipe, weights="auto", kv=kv, threads=1, work=work, say=say)


def test_a_router_learns_which_prompts_are_hard(toy_model: str, outcomes: Path, tmp_path: Path) -> None:
    said: list[str] = []
    pack = train(toy_model, outcomes, tmp_path / "router", said, risks=(0.2,))
    held = pack.config.provenance["held_out"]
    assert held["apgr"]["low"] > 0.5
    assert held["prompts"] == pack.config.num_prompts == len(pack.calibration.scores)
    assert pack.config.provenance["data"]["taught"] + held["prompts"] == 120
    assert pack.calibration.for_risk(0.2).big_share < 1
    assert any("APGR" in line and "held-out" in line for line in said)
    assert read_router(tmp_path / "router").identity == pack.identity


def test_a_certificate_says_what_it_is_for(toy_model: str, outcomes: Path, tmp_path: Path) -> None:
    sampling = SamplingSettings(temperature=0.7)
    settings = {"risks": (0.2,), "sampling": sampling, "max_tokens": 50, "big_model": toy_model}
    config = train(toy_model, outcomes, tmp_path / "router", **settings).config
    model = load_model(toy_model, threads=1)
    assert config.running == model_running(model)
    assert config.prompt_tokens == min(512, model.config.max_context)
    assert (config.answers.sampling, config.answers.max_tokens) == (sampling, 50)
    assert (config.answers.big_model, config.answers.big) == (model.source_hash, model_running(model))
    other = train(toy_model, outcomes, tmp_path / "other", risks=(0.2,), kv="f32").config
    assert (other.running.kv, other.answers.big) == ("f32", None)


def test_states_of_another_kv_type_are_made_anew(
    toy_model: str, outcomes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(toy_model, outcomes, tmp_path / "one")
    real, calls = states.embed, []
    monkeypatch.setattr(states, "embed", lambda *args: calls.append(1) or real(*args))
    train(toy_model, outcomes, tmp_path / "two", kv="f32")
    assert len(calls) == 120


def test_training_is_repeatable_and_goes_on_where_it_was(
    toy_model: str, outcomes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(toy_model, outcomes, tmp_path / "one")

    def never(*args: object) -> None:
        raise AssertionError("embedded twice")

    monkeypatch.setattr(states, "embed", never)
    assert train(toy_model, outcomes, tmp_path / "two").identity == first.identity


def test_an_interrupted_training_keeps_what_it_has(
    toy_model: str, outcomes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = states.embed, []

    def broken(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 100:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(states, "embed", broken)
    with pytest.raises(KeyboardInterrupt):
        train(toy_model, outcomes, tmp_path / "router")
    assert not (tmp_path / "router").exists()
    train(toy_model, outcomes, tmp_path / "router")
    assert len(calls) == 100 + 120 - 96  # noted every 32
    monkeypatch.undo()


def test_what_can_not_be_learned_is_said_to_be_no_better_than_a_coin(toy_model: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"prompt": f"say {n}", "weak_correct": bool(rng.random() < 0.5), "strong_correct": True} for n in range(160)
    ]
    said: list[str] = []
    train(toy_model, write(tmp_path / "noise.jsonl", rows), tmp_path / "router", said)
    assert any("no better than tossing a coin" in line for line in said)


def test_equal_prompts_are_never_on_both_sides(tmp_path: Path) -> None:
    rows = [{"prompt": f"say {n % 50}", "weak_correct": n % 3 == 0, "strong_correct": n % 3 > 0} for n in range(120)]
    file = read_outcomes(write(tmp_path / "twice.jsonl", rows))
    parts = split(file, "little", "big", Recipe())
    sides = [{file.lines[place].content for place in side} for side in (parts.taught, parts.judging)]
    assert all(sides)
    assert not sides[0] & sides[1]


def test_other_forms_of_outcomes(tmp_path: Path) -> None:
    rows = [
        {"prompt": "x", "quality": {"a": 0.25, "b": 1}},
        {"prompt": "y", "model_a": "b", "model_b": "c", "winner": "model_b"},
        {"messages": [{"role": "user", "content": "z"}], "model_a": "a", "model_b": "c", "winner": "tie"},
    ]
    file = read_outcomes(write(tmp_path / "o.jsonl", rows))
    assert file.outcomes.models == ("a", "b", "c")
    wanted = [[0.25, 1, np.nan], [np.nan, 0, 1], [0.5, np.nan, 0.5]]
    assert np.array_equal(file.outcomes.quality, wanted, equal_nan=True)
    assert file.pair("a", "c") == ("a", "c")
    for little, big, name in ((None, None, "little"), ("a", None, "big"), ("d", "a", "little"), ("a", "a", "big")):
        with pytest.raises(InvalidRequestError, match=name):
            file.pair(little, big)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, "line 1 has no outcomes"),
        ({"weak_correct": True, "strong_correct": True}, "line 1 has neither"),
        ({"prompt": "x", "weak_correct": True}, "strong_correct=None"),
        ({"prompt": "x", "weak_correct": True, "strong_correct": 2}, "strong_correct=2"),
        ({"prompt": "x", "weak_correct": "yes", "strong_correct": True}, "weak_correct='yes'"),
        ({"prompt": "x", "quality": {}}, "quality"),
        ({"prompt": "x", "quality": {"a": 1}}, "outcomes of a alone"),
        ({"prompt": "x", "model_a": "a", "model_b": "a", "winner": "tie"}, "model_a='a'"),
        ({"prompt": "x", "model_a": "a", "model_b": "b", "winner": "b"}, "winner='b'"),
    ],
)
def test_wrong_outcomes_are_refused_by_line_and_field(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_outcomes(write(tmp_path / "o.jsonl", [row]))


def test_nan_is_no_quality(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text('{"prompt": "x", "weak_correct": NaN, "strong_correct": 1}\n')
    with pytest.raises(InvalidRequestError, match="weak_correct=nan"):
        read_outcomes(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "deep"}, "kind='deep'"),
        ({"held_out": 1.0}, "held_out"),
        ({"risks": (0.0,)}, "risk"),
        ({"delta": float("nan")}, "delta"),
        ({"seed": -1}, "seed"),
        ({"depths": (99,)}, "depth"),
        ({"risks": (0.01,)}, "too few"),
        ({"risks": (0.1,), "sampling": None}, "nothing says how the recorded answers were drawn"),
        ({"sampling": SamplingSettings()}, "temperature without a risk"),
        ({"max_tokens": 5}, "max_tokens without a risk"),
        ({"max_tokens": 0, "risks": (0.1,)}, "max_tokens=0"),
        ({"big_model": "x"}, "big_model without a risk"),
        ({"little": "huge", "big": "big"}, "little='huge'"),
    ],
)
def test_impossible_settings_are_refused(
    settings: dict[str, Any], message: str, toy_model: str, outcomes: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        train(toy_model, outcomes, tmp_path / "router", **settings)
    assert not (tmp_path / "router").exists()


@pytest.mark.parametrize("weak", [True, False])
def test_outcomes_of_one_class_are_refused(weak: bool, toy_model: str, tmp_path: Path) -> None:
    rows = [{"prompt": f"say {n}", "weak_correct": weak, "strong_correct": True} for n in range(100)]
    with pytest.raises(InvalidRequestError, match="one class"):
        train(toy_model, write(tmp_path / "o.jsonl", rows), tmp_path / "router")
