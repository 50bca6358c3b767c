"""`offramp calibrate` from end to end over a tiny model on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from offramp.cli.stages import duration, told_in_lines
from offramp.exits.certificate import read_calibration
from offramp.exits.pack_file import write_pack
from offramp.llm.loading import load_model
from offramp.testing.packs import random_pack
from tests.calibrate.settling import COSTS
from tests.cli.conftest import RunCommand


@pytest.fixture(scope="module")
def pack(toy_model: str, tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFRAMP_CACHE", str(session_cache))
        loaded = load_model(toy_model, threads=1)
    folder = tmp_path_factory.mktemp("packs") / "shared"
    write_pack(folder, random_pack(loaded.config, model=loaded.source_hash, layers=(2, 3), kind="shared"))
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"hello {n}", "reference": "x"}) + "\n" for n in range(60)))
    return path


def few(path: Path, folder: Path, count: int) -> str:
    lines = path.read_text().splitlines(keepends=True)[:count]
    (folder / "few.jsonl").write_text("".join(lines))
    return str(folder / "few.jsonl")


def test_a_calibration_is_written_and_told(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path, tmp_path: Path
) -> None:
    out = tmp_path / "calibration.json"
    done = offramp(
        *("calibrate", toy_model, "--exits", str(pack), "--prompts", str(asked), "--risk", "0.5", "--risk", "0.2"),
        *("--delta", "0.1", "--max-tokens", "4", "--temperature", "0.7", "--top-k", "5", "--fill", "propagate"),
        *("--seed", "3", "-o", str(out), "--threads", "1"),
    )
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    assert "15 prompts to choose policies, 45 to test them" in done.err
    assert "risk 0.2: " in done.err
    assert "risk 0.5: " in done.err
    entries = read_calibration(out)
    assert [(entry.risk, entry.delta, entry.max_tokens) for entry in entries] == [(0.2, 0.1, 4), (0.5, 0.1, 4)]
    for entry in entries:
        assert entry.measured.num_prompts == 45
        assert (entry.sampling.temperature, entry.sampling.top_k, entry.policy.fill) == (0.7, 5, "propagate")
        assert (entry.circumstances.weights, entry.circumstances.kv) == ("q8 29", "f16")
    provenance = json.loads(out.read_text())["provenance"]
    assert provenance["seed"] == 3
    assert provenance["prompts"]["file"] == "prompts.jsonl"
    assert [each["risk"] for each in provenance["risks"]] == [0.2, 0.5]


def test_the_file_goes_into_the_pack_unless_said_otherwise(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path
) -> None:
    own = pack / "calibration.json"
    own.write_text("{damaged by somebody")
    done = offramp(
        *("calibrate", toy_model, "--exits", str(pack), "--prompts", str(asked), "--risk", "0.3"),
        *("--loss", "exact-match", "--max-tokens", "2", "--threads", "1"),
    )
    assert done.code == 0, done.err
    assert "note: the file that was there is replaced: " in done.err
    [entry] = read_calibration(own)
    assert entry.loss == "exact-match"
    assert entry.measured.mean_loss == 0.0
    assert not list(pack.glob("*.partial")) + list(pack.glob(".*"))
    own.unlink()


def test_entries_of_other_settings_stay(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mine.json"

    def calibrate(*args: str) -> str:
        common = ("calibrate", toy_model, "--exits", str(pack), "--prompts", str(asked), "--threads", "1")
        done = offramp(*common, "--max-tokens", "2", "-o", str(out), *args)
        assert done.code == 0, done.err
        return str(done.err)

    calibrate("--risk", "0.3", "--risk", "0.5")
    assert f"{out} keeps what it had for other settings (2 of its entries)" in calibrate(
        *("--risk", "0.4", "--temperature", "0.7")
    )
    entries = read_calibration(out)
    assert [(entry.risk, entry.sampling.temperature) for entry in entries] == [(0.4, 0.7), (0.3, 0.0), (0.5, 0.0)]
    calibrate("--risk", "0.2", "--temperature", "0")
    entries = read_calibration(out)
    assert [(entry.risk, entry.sampling.temperature) for entry in entries] == [(0.2, 0.0), (0.4, 0.7)]
    provenance = json.loads(out.read_text())["provenance"]
    assert provenance["settings"]["sampling"]["temperature"] == 0.0
    [earlier] = provenance["earlier"]
    assert earlier["settings"]["sampling"]["temperature"] == 0.7
    assert [each["risk"] for each in earlier["risks"]] == [0.4]


def test_what_is_certified_is_what_mode_calibrated_runs(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine of the front door has the circumstances that the calibration wrote down; its settings alone fit."""
    monkeypatch.setattr("offramp.calibrate.walk.measured_gain", lambda *args: 2.0)
    monkeypatch.setattr("offramp.calibrate.run.measure_exit_costs", lambda *args, **named: COSTS)
    done = offramp(
        *("calibrate", toy_model, "--exits", str(pack), "--prompts", str(asked), "--risk", "0.9"),
        *("--max-tokens", "6", "--threads", "1"),
    )
    assert done.code == 0, done.err
    assert re.search(r"^risk 0\.9, policy 1 of \d+: answering calibration prompts$", done.err, re.MULTILINE)
    [entry] = read_calibration(pack / "calibration.json")
    assert entry.measured.gain == 2.0
    assert min(entry.policy.thresholds) <= 1.0
    shown = []
    for most in ("6", "7"):
        words = ("hello 1", "--chat", "-m", toy_model, "--exits", str(pack), "--mode", "calibrated", "--risk", "0.9")
        answer = offramp("generate", *words, "--max-tokens", most, "--json", "--threads", "1")
        assert answer.code == 0, answer.err
        shown.append(json.loads(answer.out)["report"]["mode"])
    assert shown == ["calibrated", "full"], "longer answers were not measured"


@pytest.mark.parametrize(
    ("args", "count", "message"),
    [
        (["--risk", "0.05"], 60, "60 prompts are too few for"),
        (["--risk", "0"], 60, "risk=0.0 is impossible"),
        (["--risk", "nan"], 60, "risk=nan is impossible"),
        (["--risk", "0.3", "--delta", "1.5"], 60, "delta=1.5 is impossible"),
        (["--risk", "0.3", "--loss", "bleu"], 60, "loss='bleu' is impossible"),
        (["--risk", "0.3", "--fill", "eager"], 60, "fill='eager' is impossible"),
        (["--risk", "0.3", "--temperature", "nan"], 60, "temperature=nan is impossible"),
        (["--risk", "0.3"], 0, "has no usable prompts"),
        (["--risk", "0.3", "--limit", "3"], 60, "3 prompts are too few"),
        (["--risk", "0.3", "-o", "/nowhere/file"], 60, "no folder that can be written"),
        (["--risk", "0.3", "-o", "/"], 60, "is a folder"),
        ([], 60, "risk"),
    ],
)
def test_what_cannot_be_done_is_refused(
    offramp: RunCommand,
    toy_model: str,
    pack: Path,
    asked: Path,
    tmp_path: Path,
    args: list[str],
    count: int,
    message: str,
) -> None:
    before = sorted(path.name for path in pack.iterdir())
    prompts = few(asked, tmp_path, count)
    done = offramp("calibrate", toy_model, "--exits", str(pack), "--prompts", prompts, "--threads", "1", *args)
    assert done.code == 2
    assert message in done.err.splitlines()[0].lower() or message in done.err.splitlines()[0]
    assert sorted(path.name for path in pack.iterdir()) == before


def test_those_who_wait_are_told_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 1.0, 12.0, 13.0, 100.0, 200.0])
    monkeypatch.setattr("offramp.cli.stages.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    tell = told_in_lines("answering")
    for done in (1, 4, 5, 10, 100):
        tell(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "answering",
        "answering: 4 of 100, about 5 min left",
        "answering: 10 of 100, about 15 min left",
    ]
    assert (duration(0.2), duration(59.0), duration(61.0)) == ("1 s", "59 s", "2 min")


@pytest.mark.parametrize("name", ["risk", "delta"])
@pytest.mark.parametrize("value", ["0", "1", "1.5", "-0.1", "nan", "inf"])
def test_risk_and_delta_have_one_range(offramp: RunCommand, name: str, value: str) -> None:
    chosen = {"risk": "0.3", "delta": "0.05", name: value}
    done = offramp(
        *("calibrate", "no-model", "--exits", "no-pack", "--prompts", "no-file"),
        *("--risk", chosen["risk"], "--delta", chosen["delta"]),
    )
    assert done.code == 2
    assert f"{name}={float(value)} is impossible\n" in done.err
    assert f"{name} takes a number in (0, 1)\n" in done.err


def test_a_pack_of_another_model_is_refused(
    offramp: RunCommand, toy_model: str, asked: Path, tmp_path: Path, session_cache: Path
) -> None:
    config = load_model(toy_model, threads=1).config
    write_pack(tmp_path / "other", random_pack(config, model="9" * 64, layers=(2,)))
    done = offramp(
        *("calibrate", toy_model, "--exits", str(tmp_path / "other"), "--prompts", str(asked), "--risk", "0.3")
    )
    assert done.code == 2
    assert "9" * 64 in done.err


def test_a_shipped_pack_is_not_written_to_however_it_is_named(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.model.shipped.PACKS", pack.parent.parent)
    monkeypatch.chdir(pack.parent)
    (tmp_path / "link").symlink_to(pack)
    before = sorted(path.name for path in pack.iterdir())
    for name in ("./shared", str(pack), str(tmp_path / "link")):
        done = offramp("calibrate", toy_model, "--exits", name, "--prompts", str(asked), "--risk", "0.3")
        assert (done.code, done.out) == (2, "")
        assert "--exits shared is a shipped pack" in done.err
    assert sorted(path.name for path in pack.iterdir()) == before


def test_ctrl_c_writes_nothing(
    offramp: RunCommand, toy_model: str, pack: Path, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.calibrate.walk.Tester.walk", interrupted)
    out = tmp_path / "calibration.json"
    done = offramp(
        *("calibrate", toy_model, "--exits", str(pack), "--prompts", str(asked), "--risk", "0.3"),
        *("--max-tokens", "2", "--threads", "1", "-o", str(out)),
    )
    assert done.code == 130
    assert list(tmp_path.iterdir()) == []
