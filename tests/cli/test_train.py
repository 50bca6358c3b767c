"""`offramp train`: what is asked for wrongly, and what is missing."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.collaborate.router.pack_file import read_router
from offramp.llm.loading import load_model
from offramp.llm.running_of import model_running
from offramp.train import extra

Run = Callable[..., Any]
WAYS = [
    ("exits", "m", "--prompts", "p", "-o", "out"),
    ("layerskip", "m", "--data", "d", "-o", "out"),
    ("drafter", "m", "--prompts", "p", "-o", "out"),
    ("drafter", "m", "--prompts", "p", "-o", "out", "--kind", "student", "--layers", "0,1", "--loss", "tvd"),
]
STUDENT = ("drafter", "MODEL", "-o", "OUT", "--kind", "student")


@pytest.mark.parametrize("way", WAYS)
def test_without_torch_the_extra_is_named(way: tuple[str, ...], offramp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    done = offramp("train", *way)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: training needs torch, which is not installed\n"
        "hint: install the extra: pip install 'offramp[train]', in a checkout '.[train]'\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--kind", "medusa"), "--kind 'medusa' is impossible\nhint: it takes eagle or student"),
        (("--loss", "mse"), "--loss 'mse' is impossible\nhint: it takes forward_kl, reverse_kl, jsd, tvd"),
        (("--taps", "2,x"), "--taps '2,x' is impossible\nhint: numbers of layers, such as 12,18,24"),
        (("--taps", "2,²"), "--taps '2,²' is impossible\nhint: numbers of layers, such as 12,18,24"),
        (
            ("--kind", "student", "--layers", "2,"),
            "--layers '2,' is impossible\nhint: numbers of layers, such as 12,18,24",
        ),
        (
            ("--kind", "student", "--taps", "1,4"),
            "--taps means nothing to --kind student\nhint: of its own it has --layers, --num-layers",
        ),
        (
            ("--kind", "eagle", "--num-layers", "3"),
            "--num-layers means nothing to --kind eagle\nhint: of its own it has --taps, --width, --unrolled",
        ),
        (
            ("--disk", "much"),
            "--disk='much' is impossible\n"
            "hint: --disk takes a positive number of bytes, or a text such as 512MiB or 2GiB",
        ),
    ],
)
def test_impossible_drafters_are_refused_without_torch(
    args: tuple[str, ...], message: str, offramp: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    done = offramp("train", "drafter", "m", "--prompts", "p", "-o", "out", *args)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


@pytest.mark.oracle
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch (make oracle)")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("layerskip", "MODEL", "-o", "OUT"), "give --data or --adapter"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--adapter", "a"), "give --data or --adapter"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--curriculum", "steep"), "--curriculum 'steep'"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--layers", "2,x"), "--layers '2,x'"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--layers", "4"), r"exits \[4\]"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "nowhere"), "can't read nowhere"),
        (("layerskip", "MODEL", "-o", "OUT", "--adapter", "nowhere"), "nowhere is no file"),
        (("layerskip", "MODEL", "-o", "OUT", "--adapter", "a", "--layers", "2"), "--layers beside --adapter"),
        (("layerskip", "MODEL", "-o", "OUT", "--adapter", "a", "--rank", "7"), "--rank beside --adapter"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--whole", "--rank", "7"), "--rank beside --whole"),
        (("exits", "MODEL", "-o", "OUT", "--prompts", "nowhere"), "can't read nowhere"),
        (("exits", "MODEL", "-o", "OUT", "--prompts", "PROMPTS", "--layers", "0"), r"exit points \[0\]"),
        (("exits", "MODEL", "-o", "OUT", "--prompts", "PROMPTS", "--predictors", "deep"), "--predictors 'deep'"),
        (("exits", "MODEL", "-o", "OUT", "--prompts", "PROMPTS", "--minutes", "inf"), "--minutes=inf is impossible"),
        (("layerskip", "MODEL", "-o", "OUT", "--data", "d", "--dropout", "nan"), "--dropout"),
        (("drafter", "MODEL", "-o", "OUT", "--prompts", "nowhere"), "can't read nowhere"),
        (("drafter", "MODEL", "-o", "OUT", "--prompts", "PROMPTS", "--taps", "1,9"), r"taps \[1, 9\]"),
        ((*STUDENT, "--prompts", "nowhere"), "can't read nowhere"),
        ((*STUDENT, "--prompts", "PROMPTS", "--layers", "0,4"), "layers 0,4 are impossible for a model of 4"),
        ((*STUDENT, "--prompts", "PROMPTS", "--num-layers", "4"), "a student of 4 layers is impossible"),
        ((*STUDENT, "--prompts", "PROMPTS", "--num-layers", "1", "--layers", "0,2"), "contradict each other"),
    ],
)
def test_impossible_values_are_refused(
    args: tuple[str, ...], message: str, offramp: Run, toy_model: str, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "hello {number}"}}\n' for number in range(100)))  # enough of them
    places = {"MODEL": toy_model, "OUT": str(tmp_path / "out"), "PROMPTS": str(prompts)}
    done = offramp("train", *(places.get(arg, arg) for arg in args))
    assert (done.code, done.out) == (2, ""), done.err
    assert re.search(message, done.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--risk", "0.1"),
            "a risk, but nothing says how the recorded answers were drawn\nhint: name",
        ),
        (("--risk", "0.1", "--top-p", "0.9"), "--top-p without --temperature\nhint: name the temperature"),
        (("--temperature", "0"), "temperature without a risk\nhint: leave it out"),
        (("--max-tokens", "9"), "--max-tokens without a risk\nhint: leave it out"),
        (("--big-model", "x"), "--big-model without a risk\nhint: leave it out"),
    ],
)
def test_what_a_risk_of_a_router_is_about_must_be_told(args: tuple[str, ...], message: str, offramp: Run) -> None:
    done = offramp("train", "router", "m", "--data", "d", "-o", "out", *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_a_routers_flags_reach_its_certificate(offramp: Run, toy_model: str, tmp_path: Path) -> None:
    data, out = tmp_path / "outcomes.jsonl", tmp_path / "router"
    rows = [{"prompt": f"{n} is easy", "weak_correct": n % 9 > 0, "strong_correct": True} for n in range(120)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = offramp(
        *("train", "router", toy_model, "--data", str(data), "-o", str(out), "--kind", "linear", "--depths", "2"),
        *("--risk", "0.5", "--temperature", "0.7", "--top-k", "5", "--max-tokens", "9", "--big-model", toy_model),
        *("--kv", "f32", "--weights", "q4", "--threads", "1"),
    )
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    config = read_router(out).config
    assert config.answers is not None
    sampling = config.answers.sampling
    assert (sampling.temperature, sampling.top_k, config.answers.max_tokens) == (0.7, 5, 9)
    running = model_running(load_model(toy_model, weights="q4", kv="f32", threads=1))
    assert (config.running, config.answers.big) == (running, running)
    assert [entry.risk for entry in config.certified] == [0.5]
