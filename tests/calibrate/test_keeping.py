"""What a calibration file keeps beside new entries: those of other settings, and how they came about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from offramp.calibrate.keeping import EARLIER, kept_beside, settings_of
from offramp.exits.certificate import SamplingSettings, read_calibration, write_calibration
from tests.exits.test_certificate import ENTRY, RUNNING

WARM = replace(ENTRY, sampling=SamplingSettings(temperature=0.7))


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    beside = kept_beside(tmp_path / "none.json", [ENTRY], read_calibration)
    assert (list(beside.entries), list(beside.provenances), beside.damage) == ([], [], None)


@pytest.mark.parametrize(
    "other",
    [
        WARM,
        replace(ENTRY, max_tokens=64),
        replace(ENTRY, circumstances=replace(RUNNING, weights="q4")),
        replace(ENTRY, circumstances=replace(RUNNING, kv="f32")),
    ],
)
def test_other_settings_stay(other: object, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_calibration(path, [other, ENTRY], {"settings": settings_of(ENTRY)})  # type: ignore[list-item]
    beside = kept_beside(path, [replace(ENTRY, risk=0.1)], read_calibration)
    assert list(beside.entries) == [other]
    assert list(beside.provenances) == [], "of what was replaced"


@pytest.mark.parametrize("change", [{"risk": 0.2}, {"delta": 0.1}, {"loss": "rouge"}])
def test_the_same_settings_are_replaced(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_calibration(path, [replace(ENTRY, **change)], {})  # type: ignore[arg-type]
    assert list(kept_beside(path, [ENTRY], read_calibration).entries) == []


def test_provenances_go_along_with_their_entries(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    short = replace(ENTRY, max_tokens=5)
    earlier = [{"seed": 1, "settings": settings_of(short)}, {"seed": 0, "settings": settings_of(ENTRY)}]
    write_calibration(path, [WARM, short], {"seed": 2, "settings": settings_of(WARM), EARLIER: earlier})
    told = kept_beside(path, [ENTRY], read_calibration).provenances
    assert [each["seed"] for each in told] == [2, 1]
    assert all(EARLIER not in each for each in told)


def test_a_damaged_file_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"format": "something else"}')
    beside = kept_beside(path, [ENTRY], read_calibration)
    assert list(beside.entries) == []
    assert "format" in str(beside.damage)
