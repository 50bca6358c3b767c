"""A profile is written with comments, reads back as the same, and says by name what it can't mean."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.core.profile import Profile
from offramp.errors import InvalidRequestError, ResourceError
from offramp.llm.profile_file import check_profile_target, profile_text, read_profile, this_machine, write_profile
from tests.llm.profiles import PROFILE

NOTES = {"draft": "1.21 times the speed of plain decoding"}


def written(folder: Path, profile: Profile = PROFILE) -> Path:
    path = folder / "profile.yaml"
    write_profile(path, profile, notes=NOTES, lost=["draft=ngram: 1.02 (0.97 to 1.06)"])
    return path


def edited(folder: Path, edit: Callable[[str], str]) -> Path:
    path = written(folder)
    before = path.read_text()
    path.write_text(edit(before))
    assert path.read_text() != before
    return path


@pytest.mark.parametrize(
    "profile",
    [
        PROFILE,
        replace(PROFILE, gain=None, options={"draft": "off"}),
        replace(PROFILE, options={}),
        replace(PROFILE, risk=0.05, options={"exits": "./my packs/a", "mode": "calibrated", "risk": 0.05}),
        replace(PROFILE, risk=1e-05, options={"exits": "a", "mode": "calibrated", "risk": 1e-05}),
        replace(PROFILE, options={"max_num_seqs": 32, "max_draft": None, "kv": "f32", "weights": "q8"}),
    ],
)
def test_a_profile_reads_back_as_the_same(profile: Profile, tmp_path: Path) -> None:
    assert read_profile(written(tmp_path, profile)) == profile


@given(st.text(min_size=1))
def test_any_text_reads_back_as_the_same(text: str) -> None:
    profile = replace(PROFILE, model=text, options={"draft_model": text})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        write_profile(path, profile, notes={"draft_model": text}, lost=[text])
        assert read_profile(path) == profile


def test_it_says_why_and_what_was_tried() -> None:
    text = profile_text(PROFILE, "mine.yaml", NOTES, ["draft=ngram: 1.02"])
    assert "offramp serve --profile mine.yaml" in text.splitlines()[0]
    assert "  # 1.21 times the speed of plain decoding\n  draft: suffix\n  max_draft: 8\n" in text
    assert text.endswith("# What else was tried:\n#   draft=ngram: 1.02\n")
    assert "promise: lossless\n" in text
    assert "surely faster" in profile_text(replace(PROFILE, gain=None), "mine.yaml", {}, [])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format: offramp-profile", "format: other", "it is no profile"),
        ("version: 1", "version: 2", "version=2 is not 1"),
        ("model: smollm2-135m", "modell: smollm2-135m", "there is no 'modell'"),
        ("model: smollm2-135m\n", "", "model is missing"),
        ("model: smollm2-135m", "model: 5", "model=5"),
        ("source_hash: ", "source_hash: []\nmodels: ", "there is no 'models'"),
        ("promise: lossless", "promise: soft", "promise='soft'"),
        ("promise: lossless", "promise: 1.5", "promise=1.5"),
        ("promise: lossless", "promise: .nan", "promise=nan"),
        ("promise: lossless", "promise: true", "promise=True"),
        ("promise: lossless", "promise: 0.05", "don't keep the promise 0.05"),
        ("max_draft: 8", "mode: unchecked", "don't keep the promise lossless"),
        ("max_draft: 8", "verifier: rejection", "don't keep the promise lossless"),
        ("max_draft: 8", "max_drafts: 8", "there is no option 'max_drafts'"),
        ("max_draft: 8", "max_draft: eight", "max_draft='eight'"),
        ("max_draft: 8", "draft: off", "'draft' is given twice"),
        ("  ratio: 1.21", "  ratio: fast", "gain.ratio='fast'"),
        ("  ratio: 1.21", "  ratio: 0", "gain.ratio=0"),
        ("  turns: 7", "  turns: 1.5", "gain.turns=1.5"),
        ("  turns: 7\n", "", "gain.turns is missing"),
        ("  turns: 7", "  turns: 7\n  luck: 1", "there is no 'gain.luck'"),
        ("  num_cpus: 2", "  num_cpus: 0", "machine.num_cpus=0"),
        ("  streams: 1", "  streams: true", "trial.streams=True"),
        ("  workload: mine", "  workload: 7", "trial.workload=7"),
    ],
)
def test_what_it_cant_mean_is_refused_with_the_file(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = edited(tmp_path, lambda text: text.replace(old, new))
    with pytest.raises(InvalidRequestError) as caught:
        read_profile(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["gain", "machine", "options"])
def test_a_group_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    def flattened(text: str) -> str:
        before, rest = text.split(f"\n{name}:\n")
        after = [line for line in rest.splitlines() if not line.startswith("  ")]
        return "\n".join([before, f"{name}: 3", *after]) + "\n"

    with pytest.raises(InvalidRequestError, match=f"{name}=3"):
        read_profile(edited(tmp_path, flattened))


def test_only_a_profile_is_replaced(tmp_path: Path) -> None:
    check_profile_target(tmp_path / "new.yaml")
    check_profile_target(edited(tmp_path, lambda text: text.replace("version: 1", "version: 7")))
    other = tmp_path / "other.yaml"
    other.write_text("a: 1\n")
    for path, message in (
        (other, "no profile"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x.yaml", "no folder that can be written"),
        (Path("/dev/null"), "no profile"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            check_profile_target(path)


def test_what_can_not_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="can't write"):
        write_profile(tmp_path / "none" / "x.yaml", PROFILE)
    assert list(tmp_path.iterdir()) == []


def test_this_machine_is_named() -> None:
    here = this_machine()
    assert here.cpu
    assert here.num_cpus >= 1
    assert here.offramp
