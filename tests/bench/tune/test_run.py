"""A search becomes a profile that says why, and an interrupt says what is known so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offramp.bench.run.method import Method
from offramp.bench.tune import run as run_module
from offramp.bench.tune.run import Tuned, Wish, tune
from offramp.bench.workloads.item import Item, Workload
from offramp.errors import InvalidRequestError
from offramp.llm.model_flags import ModelFlags
from offramp.llm.profile_file import read_profile, write_profile
from tests.bench.tune.simulated import FACTS, SimulatedStand, by_words, space

WORKLOAD = Workload(
    name="mine",
    items=tuple(Item(name=str(number), task="t", content="x") for number in range(60)),
    metrics=(),
    sha256="cd34",
)


def tuned(speeds: Mapping[str, float], *, said: list[str] | None = None, **changes: Any) -> Tuned:
    wrong = changes.pop("wrong", None)
    stand = SimulatedStand(by_words(speeds), wrong=wrong)
    wish = Wish(model="toy", workload=WORKLOAD, space=space(**changes), max_tokens=64, minutes=10)
    return tune(wish, stand, (said if said is not None else []).append)


def written(result: Tuned, folder: Path) -> str:
    path = folder / "profile.yaml"
    write_profile(path, result.profile, notes=result.notes, lost=result.lost)
    assert read_profile(path) == result.profile
    return path.read_text()


def test_what_is_faster_is_written_with_why_and_what_else_was_tried(tmp_path: Path) -> None:
    result = tuned({"suffix": 1.3, "ngram": 1.1})
    text = written(result, tmp_path)
    assert result.method == "suffix"
    assert result.profile.options == {"draft": "suffix"}
    gain = result.profile.gain
    assert gain is not None
    assert f"  # {gain.ratio:.2f} times ({gain.low:.2f} to {gain.high:.2f}) the speed of plain decoding" in text
    assert "#   ngram: 1." in text
    assert "#   suffix max_draft=4: " in text
    assert "#   plain" not in text
    assert (result.profile.source_hash, result.profile.risk) == (FACTS.source_hash, None)
    assert (result.profile.trial.workload, result.profile.trial.num_prompts) == ("mine", 60)


def test_where_nothing_is_faster_it_serves_plain_decoding_and_says_so(tmp_path: Path) -> None:
    result = tuned({"auto": 0.8, "ngram": 0.7, "suffix": 0.9, "threads=1": 0.6})
    text = written(result, tmp_path)
    assert (result.method, dict(result.profile.options), result.profile.gain) == ("plain", {"draft": "off"}, None)
    assert "  # nothing that drafts is surely faster than plain decoding\n  draft: off\n" in text
    assert "gain: null" in text
    assert "#   suffix: 0." in text


def test_a_tuned_option_is_told_apart_from_its_structure(tmp_path: Path) -> None:
    text = written(tuned({"suffix": 1.3, "max_draft=4": 1.3}), tmp_path)
    above = text.split("  max_draft: 4")[0].splitlines()[-1]
    assert above.endswith("the speed without it")
    assert above.startswith("  # 1.")


def test_fewer_threads_are_told_beside_plain_decoding(tmp_path: Path) -> None:
    text = written(tuned({"auto": 0.8, "ngram": 0.7, "suffix": 0.9, "threads=1": 1.4}), tmp_path)
    assert "  # nothing that drafts is surely faster than plain decoding\n  draft: off\n" in text
    assert "the speed without it\n  threads: 1\n" in text


def test_what_was_asked_for_is_said_to_be(tmp_path: Path) -> None:
    common = ModelFlags(weights="q8", kv="f32", threads=2)
    text = written(tuned({"suffix": 1.3}, common=common, formats=("q8",)), tmp_path)
    for option in ("weights: q8", "kv: f32", "threads: 2"):
        assert f"  # as asked for\n  {option}\n" in text


def test_other_weights_are_written_with_what_they_change(tmp_path: Path) -> None:
    result = tuned({"q4": 1.4}, formats=("q8", "q4"))
    assert result.profile.options["weights"] == "q4"
    assert "100% of the answers equal, ROUGE-L 1.00 beside plain decoding with q8" in written(result, tmp_path)


def test_a_risk_is_the_promise(tmp_path: Path) -> None:
    result = tuned({"calibrated": 1.5}, exits="smollm2-135m", risk=0.05)
    text = written(result, tmp_path)
    assert result.profile.risk == 0.05
    assert result.profile.options == {"mode": "calibrated", "exits": "smollm2-135m", "risk": 0.05}
    assert "promise: 0.05" in text


def test_faults_are_reported_and_not_averaged(tmp_path: Path) -> None:
    result = tuned({"suffix": 2.0, "ngram": 1.3}, wrong={"suffix": "tokens"})
    assert "#   suffix: left out: its tokens are not those of plain decoding" in written(result, tmp_path)
    assert result.tried["suffix"] == {"fault": "its tokens are not those of plain decoding"}


def test_it_is_one_line_of_json() -> None:
    fields = tuned({"suffix": 1.3}).fields()
    assert json.loads(json.dumps(fields)) == fields
    assert {"method", "options", "gain", "tried", "cpu", "source_hash"} <= set(fields)


@pytest.mark.parametrize("raw", [False, True])
def test_without_a_chat_template_prompts_must_be_raw(raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = SimulatedStand(by_words({"suffix": 1.3}))
    monkeypatch.setattr(stand, "begin", lambda plain: stand._start(plain) or replace(FACTS, chat=False))
    items = tuple(replace(item, raw=raw) for item in WORKLOAD.items)
    wish = Wish(model="toy", workload=replace(WORKLOAD, items=items), space=space(), max_tokens=64, minutes=10)
    if raw:
        assert tune(wish, stand, [].append).method == "suffix"
        return
    with pytest.raises(InvalidRequestError, match="toy has no chat template") as caught:
        tune(wish, stand, [].append)
    assert "--raw" in caught.value.hint
    assert stand.turns == []


def test_an_interrupt_says_what_is_known_so_far() -> None:
    speed, said = by_words({"suffix": 1.3}), list[str]()
    turns = 0

    def interrupted(method: Method) -> float:
        nonlocal turns
        turns += 1
        if turns > 40:
            raise KeyboardInterrupt
        return speed(method)

    stand = SimulatedStand(interrupted)
    wish = Wish(model="toy", workload=WORKLOAD, space=space(), max_tokens=64, minutes=10)
    with pytest.raises(KeyboardInterrupt):
        tune(wish, stand, said.append)
    assert any(line.startswith("suffix: 1.") for line in said)
    assert any("no profile was written" in line for line in said)


def test_a_shipped_drafter_is_tried_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = SimpleNamespace(folder=Path("packs") / "toy")
    monkeypatch.setattr(run_module, "shipped_drafter", lambda fits: pack if fits(pack_of(FACTS.source_hash)) else None)
    assert "eagle" in tuned({}).tried
    assert "eagle" not in tuned({}, common=ModelFlags(drafter="off")).tried
    monkeypatch.setattr(run_module, "shipped_drafter", lambda fits: pack if fits(pack_of("another")) else None)
    assert "eagle" not in tuned({}).tried


def pack_of(model: str) -> SimpleNamespace:
    return SimpleNamespace(model=model)


def test_prompts_come_mixed_and_always_in_the_same_order() -> None:
    wish = Wish(model="toy", workload=WORKLOAD, space=space(), max_tokens=64, minutes=10)
    names = [item.name for item in wish.items()]
    assert names == [item.name for item in wish.items()]
    assert names != [item.name for item in WORKLOAD.items]
    assert sorted(names) == sorted(item.name for item in WORKLOAD.items)
