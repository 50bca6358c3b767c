"""Policies and calibrations on disk: what is written comes back, and what was changed is refused by its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from offramp.collaborate.big_little_certificate import CertifiedPair, Pair, read_pairs, write_pairs
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError
from offramp.exits.certificate import Measured, SamplingSettings, choose, read_calibration

PAIR = Pair(
    model="a",
    config="c",
    weights="q8 29",
    kv="f16",
    little_model="b",
    little_config="d",
    little_weights="q4 15",
    little_kv="f16",
)
ENTRY = CertifiedPair(
    risk=0.05,
    delta=0.1,
    loss="tokens",
    policy=BigLittlePolicy(fallback=0.5, rollback=3.5, max_run=8),
    circumstances=PAIR,
    sampling=SamplingSettings(ignore_eos=True),
    max_tokens=64,
    measured=Measured(num_prompts=400, mean_loss=0.01, p_value=0.001, depth=30.0, gain=1.3),
    little_share=0.75,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "pairs.json", [ENTRY, replace(ENTRY, risk=0.1)], {"seed": 3})
    return tmp_path / "pairs.json"


def test_what_is_written_comes_back(path: Path) -> None:
    assert read_pairs(path) == [ENTRY, replace(ENTRY, risk=0.1)]
    assert choose(read_pairs(path), 0.07) == ENTRY


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("policy", "rollback"), -1.0, "rollback"),
        (("policy", "rollback"), None, "rollback"),
        (("policy", "fallback"), 1.5, "fallback"),
        (("policy", "max_run"), 65, "max_run"),
        (("policy", "max_run"), 0, "max_run"),
        (("policy", "layers"), [3], "'layers' is unknown"),
        (("little_share",), 1.5, "little_share"),
        (("circumstances", "little_model"), 5, "little_model"),
        (("circumstances", "pack"), "p", "'pack' is unknown"),
        (("measured", "p_value"), 0.2, "p_value"),
        (("risk",), 1.0, "risk"),
    ],
)
def test_what_was_changed_is_refused_by_its_place(
    path: Path, keys: tuple[str, ...], value: object, message: str
) -> None:
    content = json.loads(path.read_text())
    where = content["entries"][1]
    for key in keys[:-1]:
        where = where[key]
    where[keys[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(CorruptModelError, match=f"entry 1.*{message}"):
        read_pairs(path)


def test_a_calibration_of_exits_is_no_calibration_of_a_pair(path: Path) -> None:
    with pytest.raises(CorruptModelError, match="format"):
        read_calibration(path)
    path.write_text(path.read_text().replace("offramp-big-little-calibration", "offramp-calibration"))
    with pytest.raises(CorruptModelError, match="format"):
        read_pairs(path)
    with pytest.raises(ModelNotFoundError):
        read_pairs(path.parent / "none.json")


@pytest.mark.parametrize("name", list(Pair.__slots__))
def test_another_pair_is_refused_naming_the_difference(name: str) -> None:
    ENTRY.check_fits(PAIR)
    with pytest.raises(InvalidRequestError, match=f"{name} is 'other'"):
        ENTRY.check_fits(replace(PAIR, **{name: "other"}))
