"""Certified entries: what fits, what is inside the promise, and the file."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError, ResourceError
from offramp.exits.certificate import (
    VERSION,
    CertifiedEntry,
    Circumstances,
    Measured,
    SamplingSettings,
    choose,
    read_calibration,
    write_calibration,
)
from offramp.exits.frozen import FrozenPolicy
from offramp.params import SamplingParams

RUNNING = Circumstances(model="ab12", config="ef56", pack="cd34", weights="q8", kv="f16", batching="compact")
ENTRY = CertifiedEntry(
    risk=0.05,
    delta=0.05,
    loss="tokens",
    policy=FrozenPolicy(layers=(6, 12), thresholds=(0.1 + 0.2, 0.7), measure="margin"),
    circumstances=RUNNING,
    sampling=SamplingSettings(),
    max_tokens=128,
    measured=Measured(num_prompts=400, mean_loss=0.021, p_value=0.003, depth=17.5, gain=1.31),
)


def test_a_file_gives_the_same_entries_back(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    entries = [ENTRY, replace(ENTRY, risk=0.02, sampling=SamplingSettings(temperature=0.7, top_p=0.95))]
    write_calibration(path, entries, {"prompts": "cc0.txt", "seed": 3})
    assert read_calibration(path) == entries
    write_calibration(path, [], {})
    assert read_calibration(path) == []
    assert [file.name for file in tmp_path.iterdir()] == ["calibration.json"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="nowhere"):
        write_calibration(tmp_path / "nowhere" / "calibration.json", [ENTRY], {})
    with pytest.raises(ModelNotFoundError, match=r"calibration\.json"):
        read_calibration(tmp_path / "calibration.json")


@pytest.mark.parametrize("name", [field.name for field in fields(Circumstances)])
def test_another_engine_is_refused_by_the_field_that_differs(name: str) -> None:
    ENTRY.check_fits(RUNNING)
    with pytest.raises(InvalidRequestError, match=rf"{name} is 'other'.*{getattr(RUNNING, name)}"):
        ENTRY.check_fits(replace(RUNNING, **{name: "other"}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"temperature": 0.5}, "temperature=0.5"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"min_tokens": 4}, "min_tokens"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"logit_bias": {5: 1.0}}, "logit_bias"),
        ({"max_tokens": 129}, "max_tokens=129"),
        ({"max_tokens": None}, "max_tokens=the rest"),
    ],
)
def test_requests_outside_the_promise_are_told_why(change: dict[str, object], named: str) -> None:
    inside = {"temperature": 0.0, "max_tokens": 128}
    assert ENTRY.why_not(SamplingParams(**inside)) is None  # type: ignore[arg-type]
    reason = ENTRY.why_not(SamplingParams(**inside | change))  # type: ignore[arg-type]
    assert reason is not None
    assert named in reason


def test_what_changes_no_token_is_inside() -> None:
    """Draws of a greedy request, its seed, its number of choices, where it stops."""
    free = SamplingParams(temperature=0.0, max_tokens=5, top_k=40, top_p=0.5, min_p=0.1, seed=3, n=4, stop=("x",))
    assert ENTRY.why_not(free) is None
    sampled = replace(ENTRY, sampling=SamplingSettings.of(SamplingParams(temperature=0.7, top_k=-1, top_p=0.9)))
    assert sampled.why_not(SamplingParams(temperature=0.7, top_k=0, top_p=0.9, max_tokens=8)) is None
    assert sampled.why_not(SamplingParams(temperature=0.7, top_k=40, top_p=0.9, max_tokens=8)) is not None
    assert sampled.why_not(SamplingParams(temperature=0.7, top_p=0.95, max_tokens=8)) is not None


def gaining(risk: float, gain: float) -> CertifiedEntry:
    return replace(ENTRY, risk=risk, measured=replace(ENTRY.measured, gain=gain))


def test_the_fastest_entry_within_the_risk_is_chosen() -> None:
    entries = [gaining(0.05, 1.2), gaining(0.02, 1.3), gaining(0.1, 1.9), gaining(0.01, 0.9)]
    assert choose(entries, 0.05) is entries[1]
    assert choose(entries, 0.2) is entries[2]
    assert choose(entries, 0.01) is None, "slower than full depth"
    with pytest.raises(InvalidRequestError, match=r"risk=0\.005") as caught:
        choose(entries, 0.005)
    assert "0.01, 0.02, 0.05, 0.1" in caught.value.hint
    with pytest.raises(InvalidRequestError, match=r"risk=0\.05"):
        choose([], 0.05)


def file_with(tmp_path: Path, change: dict[str, object], group: str | None = None) -> Path:
    """A file whose only entry has some fields, or those of a group, replaced; of the value `...` removed."""
    entry = json.loads(json.dumps(ENTRY.fields()))
    place = entry if group is None else entry[group]
    place.update({name: value for name, value in change.items() if value is not ...})
    for name in [name for name, value in change.items() if value is ...]:
        del place[name]
    path = tmp_path / "calibration.json"
    path.write_text(
        json.dumps({"format": "offramp-calibration", "version": VERSION, "provenance": {}, "entries": [entry]})
    )
    return path


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        (None, "risk", 0.0),
        (None, "risk", 1.0),
        (None, "risk", float("nan")),
        (None, "delta", -1),
        (None, "loss", 5),
        (None, "max_tokens", 0),
        (None, "policy", ...),
        (None, "surprise", 1),
        ("policy", "thresholds", [0.5]),
        ("policy", "surprise", 1),
        ("circumstances", "model", ...),
        ("circumstances", "batching", "literal"),
        ("sampling", "temperature", ...),
        ("sampling", "temperature", float("inf")),
        ("sampling", "ignore_eos", "no"),
        ("measured", "mean_loss", 1.5),
        ("measured", "p_value", 0.06),
        ("measured", "gain", None),
        ("measured", "num_prompts", 1.5),
    ],
)
def test_damaged_entries_are_refused_by_name(tmp_path: Path, group: str | None, name: str, value: object) -> None:
    assert read_calibration(file_with(tmp_path, {}))
    with pytest.raises(CorruptModelError, match=rf"entry 0.*{name}"):
        read_calibration(file_with(tmp_path, {name: value}, group))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSON"),
        ("[]", "list"),
        ('{"format": "offramp-exits"}', "format"),
        ('{"format": "offramp-calibration", "version": 1, "entries": []}', "version"),
        ('{"format": "offramp-calibration", "version": 2, "entries": {}}', "entries"),
        ('{"format": "offramp-calibration", "version": 2, "entries": [3]}', "entries"),
        ('{"format": "offramp-calibration", "version": 2, "entries": [], "more": 1}', "more"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(CorruptModelError, match=named):
        read_calibration(path)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path, {})
    whole = path.read_bytes()
    for end in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:end])
        with pytest.raises(CorruptModelError):
            read_calibration(path)
