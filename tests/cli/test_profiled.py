"""`offramp serve --profile`: its options under the flags, for the model that it was measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offramp.cli import serve as serve_module
from offramp.cli.named_models import NamedModel
from offramp.core.profile import Machine
from offramp.llm.loading import load_model
from offramp.llm.profile_file import this_machine, write_profile
from tests.llm.profiles import PROFILE

Offramp = Callable[..., Any]


def written(folder: Path, machine: Machine | None = None, **changes: Any) -> str:
    path = folder / "profile.yaml"
    write_profile(path, replace(PROFILE, machine=machine or this_machine(), **changes))
    return str(path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NamedModel]:
    found: list[NamedModel] = []
    monkeypatch.setattr(serve_module, "run", lambda named, *others: found.extend(named))
    return found


def test_model_and_options_are_the_profiles(offramp: Offramp, tmp_path: Path, started: list[NamedModel]) -> None:
    done = offramp("serve", "--profile", written(tmp_path), "--port", "0")
    assert (done.code, done.err) == (0, "")
    [named] = started
    assert (named.names, named.start.model) == (("smollm2-135m",), "smollm2-135m")
    assert named.start.source_hash == PROFILE.source_hash
    assert (named.start.serving.draft, named.start.serving.max_draft) == ("suffix", 8)
    assert (named.start.kv, named.start.serving.max_num_seqs) == ("f16", 16)


def test_flags_win_also_where_they_say_the_default(offramp: Offramp, tmp_path: Path, started: list[NamedModel]) -> None:
    path = written(tmp_path, options={"draft": "suffix", "max_draft": 8, "kv": "f32", "max_num_seqs": 32})
    flags = ["--max-draft", "4", "--kv", "f16", "--threads", "1"]
    assert offramp("serve", "mine=other.gguf", "--profile", path, "--port", "0", *flags).code == 0
    [named] = started
    assert (named.names, named.start.model) == (("mine",), "other.gguf")
    assert (named.start.serving.draft, named.start.serving.max_draft, named.start.kv) == ("suffix", 4, "f16")
    assert (named.start.serving.max_num_seqs, named.start.threads) == (32, 1)


def test_another_machine_is_told_in_one_line(offramp: Offramp, tmp_path: Path, started: list[NamedModel]) -> None:
    path = written(tmp_path, replace(this_machine(), num_cpus=255, offramp="0.0.1"))
    done = offramp("serve", "--profile", path, "--port", "0")
    assert (done.code, len(started)) == (0, 1)
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"warning: {path} was not measured here: num_cpus is ")
    assert "and was 255, offramp is " in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a=x.gguf", "b=y.gguf"], "--profile is for one MODEL"),
        (["--models-config", "{profile}"], "--profile is for one MODEL"),
        (["--mode", "full"], "mode full runs no drafts"),
        (["--max-draft", "0"], "beside max_draft=0"),
    ],
)
def test_what_does_not_go_together_is_refused(
    offramp: Offramp, tmp_path: Path, started: list[NamedModel], args: list[str], message: str
) -> None:
    path = written(tmp_path)
    done = offramp("serve", "--profile", path, "--port", "0", *(path if arg == "{profile}" else arg for arg in args))
    assert (done.code, started) == (2, []), done.err
    assert message in done.err.replace("--max-draft=0", "max_draft=0")
    assert done.err.count("\n") == 2


def test_a_refusal_names_the_options_of_the_profile(offramp: Offramp, tmp_path: Path) -> None:
    path = written(tmp_path)
    assert f"came from {path}" in offramp("serve", "--profile", path, "--mode", "full", "--port", "0").err
    assert "can't read" in offramp("serve", "--profile", str(tmp_path / "none.yaml"), "--port", "0").err


def test_another_model_is_refused_when_it_is_loaded(offramp: Offramp, tmp_path: Path, toy_model: str) -> None:
    done = offramp("serve", toy_model, "--profile", written(tmp_path), "--port", "0", "--threads", "1")
    assert done.code == 2
    assert f"{toy_model} is another model than the profile's" in done.err
    assert PROFILE.source_hash in done.err


def test_the_same_model_is_served(
    offramp: Offramp, tmp_path: Path, toy_model: str, started: list[NamedModel], session_cache: Path
) -> None:
    assert offramp("serve", toy_model, "--port", "0").code == 0  # sets the cache of this test
    source_hash = load_model(toy_model, threads=1).source_hash
    path = written(tmp_path, model=toy_model, source_hash=source_hash, options={"draft": "off", "threads": 1})
    assert offramp("serve", "--profile", path, "--port", "0").code == 0
    assert started[-1].start.find().load().source_hash == source_hash
