"""Cascades from Python: scores by hand, who answers, and a certificate that says what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from offramp.collaborate.cascade.calibration import BothRunning, CascadeCalibration, read_cascade, write_cascade
from offramp.collaborate.cascade.cascade import Cascade, Message, sample_params
from offramp.collaborate.cascade.certify import calibrate_cascade
from offramp.collaborate.cascade.scores import SCORES, Written, agreement, need
from offramp.core import SamplingParams, StructuredOutputsParams, TokenLogprobs
from offramp.errors import CorruptModelError, InvalidRequestError, ModelNotFoundError
from offramp.llm import LLM
from tests.serve.piping import HASH, SURE, UNSURE, UNSURE_NEED, big_model, little_model

RUNNING = BothRunning(config="c", weights="q8 9", kv="f16", big_config="b", big_weights="q4 9", big_kv="q8")
GREEDY = SamplingParams(temperature=0, max_tokens=8)


def test_scores_by_hand() -> None:
    written = Written(text="x", logprobs=[math.log(0.5), math.log(0.125)])
    assert need("mean", written) == pytest.approx(0.75)
    assert need("quantile", written) == pytest.approx(1 - math.exp(math.log(0.125) + 0.1 * math.log(4)))
    assert need("mean", Written(text="x", logprobs=[0.0] * 5)) == 0.0
    assert 0.999 < need("mean", Written(text="", logprobs=[])) < 1.0
    assert need("mean", Written(text="x", logprobs=[-math.inf])) < 1.0


def test_agreement_by_hand() -> None:
    assert agreement(["the cat sat", "The cat sat down"]) == 1.0
    assert agreement(["a b", "c d"]) == 0.0
    assert agreement(["a b", "b c", "a b"]) == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert agreement(["", "a"]) == 0.0
    assert agreement(["", ""]) == 1.0
    assert need("agreement", Written(text="a b", logprobs=[], samples=["a b"] * 4)) == 0.0
    assert need("agreement", Written(text="a", logprobs=[], samples=["b"])) < 1.0


def test_samples_are_short_and_drawn() -> None:
    params = sample_params(SamplingParams(temperature=0, max_tokens=500, min_tokens=100, logprobs=3), 4)
    assert (params.n, params.max_tokens, params.min_tokens, params.logprobs) == (4, 48, 48, None)
    assert params.temperature > 0
    assert sample_params(SamplingParams(temperature=0.3, max_tokens=5), 4).temperature == 0.3


def test_samples_do_not_repeat_a_seeded_answer() -> None:
    """The answer's own seed would draw it again as the first sample, which then agrees whatever the model knows."""
    with LLM.from_loaded(little_model()) as little:
        params = SamplingParams(temperature=1.0, max_tokens=8, seed=7, ignore_eos=True)
        answer, samples = (little.chat(chat(UNSURE), each).outputs for each in (params, sample_params(params, 4)))
        assert answer[0].text not in [each.text for each in samples]
    assert sample_params(SamplingParams(seed=2**64 - 1), 4).seed == 2**64 - 2
    assert sample_params(SamplingParams(), 4).seed is None


def chat(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("score", sorted(name for name, kind in SCORES.items() if not kind.trained))
def test_real_front_doors_as_one(score: str) -> None:
    with LLM.from_loaded(little_model()) as little, LLM.from_loaded(big_model()) as big:
        cascade = Cascade(little, big, score=score, threshold=0.3)
        sure, unsure = cascade.chat(chat(SURE), GREEDY), cascade.chat(chat(UNSURE), GREEDY)
        assert (sure.answered_by, sure.output.outputs[0].text) == ("little", "one")
        assert (unsure.answered_by, unsure.output.outputs[0].text) == ("big", "two")
        assert cascade.num_calls == {"little": 1, "big": 1}
        if score == "mean":
            assert unsure.score == pytest.approx(UNSURE_NEED, abs=1e-3)


@pytest.mark.parametrize(("threshold", "who"), [(0.0, "big"), (1.0, "little")])
def test_the_ends_ask_always_and_never(threshold: float, who: str) -> None:
    cascade = Cascade(Teller("a", 0.5), Teller("b", 0.5), score="mean", threshold=threshold)
    assert cascade.chat(chat("x"), GREEDY).answered_by == who


@pytest.mark.parametrize(("options", "name"), [({"score": "mood"}, "score"), ({"threshold": math.nan}, "threshold")])
def test_impossible_cascades_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        Cascade(Teller("a"), Teller("b"), **{"score": "mean", "threshold": 0.5, **options})


@dataclass(frozen=True)
class Said:
    text: str
    logprobs: Sequence[TokenLogprobs]


@dataclass(frozen=True)
class Output:
    outputs: list[Said]


@dataclass
class Teller:
    """Says one text, with a chance that the conversation's number sets where `chance` is None."""

    text: str
    chance: float | None = None
    asked: list[SamplingParams | None] = field(default_factory=list)

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Output:
        self.asked.append(params)
        chance = self.chance if self.chance is not None else 1 - int(str(messages[0]["content"])) / 400
        return Output([Said(self.text, [TokenLogprobs(1, math.log(chance), 1, [])])])


def calibrated(wrong_from: int, **options: Any) -> CascadeCalibration:
    """400 conversations, the little model less sure of each, and wrong from one on."""
    little, big = Teller("little"), Teller("big", 1.0)
    return calibrate_cascade(
        little,
        big,
        [chat(str(number)) for number in range(400)],
        lambda number, text: float(text == "big" or number < wrong_from),
        GREEDY,
        model=HASH,
        score="mean",
        **options,
    )


def test_a_calibration_finds_where_the_little_model_goes_wrong() -> None:
    found = calibrated(300, risks=(0.05, 0.4)).thresholds
    careful, careless = found.for_risk(0.05), found.for_risk(0.4)
    assert 0.65 < careful.threshold < 0.85  # wrong from 0.75 on
    assert careless.threshold == 1.0
    assert careful.num_prompts == len(found.scores) == 280
    assert careful.big_share == pytest.approx(0.25, abs=0.1)
    assert careful.mean_loss <= 0.05


def test_a_hopeless_little_model_gets_no_certificate() -> None:
    found = calibrated(0, risks=(0.05,)).thresholds
    with pytest.raises(InvalidRequestError, match="not certified"):
        found.for_risk(0.05)


def test_too_few_conversations_and_impossible_qualities_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="too few"):
        calibrated(300, risks=(0.001,))
    with pytest.raises(InvalidRequestError, match="1 conversations"):
        calibrate_cascade(Teller("a"), Teller("b"), [chat("1")], lambda *_: 1.0, GREEDY, model=HASH, score="mean")
    with pytest.raises(InvalidRequestError, match="quality=2"):
        calibrate_cascade(
            Teller("a", 0.5), Teller("b"), [chat("1")] * 9, lambda *_: 2.0, GREEDY, model=HASH, score="mean"
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logit_bias", {1: 1.0}),
        ("structured_outputs", StructuredOutputsParams(regex="a")),
        ("stop", ("x",)),
        ("stop_token_ids", (5,)),
    ],
)
def test_what_a_certificate_does_not_name_is_no_part_of_a_calibration(field: str, value: Any) -> None:
    params = replace(GREEDY, **{field: value})
    with pytest.raises(InvalidRequestError, match=field):
        calibrate_cascade(
            Teller("a", 0.5), Teller("b"), [chat("1")] * 9, lambda *_: 1.0, params, model=HASH, score="mean"
        )
    if field != "n":
        assert field in str(calibrated(300).why_not(params))


def test_a_calibration_is_back_as_it_was(tmp_path: Path) -> None:
    kept = replace(calibrated(300, risks=(0.05,)), running=RUNNING)
    write_cascade(tmp_path / "cascade.json", kept)
    read = read_cascade(tmp_path / "cascade.json")
    assert read.thresholds.scores.tolist() == kept.thresholds.scores.tolist()
    assert read.thresholds.certified == kept.thresholds.certified
    assert (read.model, read.score, read.sampling, read.max_tokens) == (HASH, "mean", kept.sampling, 8)
    assert read.running == RUNNING
    assert read.why_not(GREEDY) is None
    assert "temperature" in str(read.why_not(SamplingParams(temperature=0.5, max_tokens=8)))
    assert "max_tokens" in str(read.why_not(SamplingParams(temperature=0, max_tokens=None)))
    for ending in ({"stop": ("x",)}, {"stop_token_ids": (5,)}):
        assert f"{next(iter(ending))} was not part" in str(read.why_not(replace(GREEDY, **ending)))  # type: ignore[arg-type]
    assert "logit_bias" in str(read.why_not(SamplingParams(temperature=0, max_tokens=8, logit_bias={1: 1.0})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "other"),
        ("version", 2),
        ("model", "x"),
        ("score", "mood"),
        ("sampling", {}),
        ("max_tokens", 0),
        ("sample", []),
        ("sample", [0.5, 0.4]),
        ("sample", [1.0]),
        ("certified", None),
        ("big_model", "x"),
        ("running", {}),
        ("running", {"kv": "f16"}),
        ("running", {**asdict(RUNNING), "kv": 16}),
        ("running", {**asdict(RUNNING), "speed": "high"}),
        ("scorer", {"weights": [1.0, 0.0, 0.0], "bias": 0.0}),
        ("colour", 1),
    ],
)
def test_a_damaged_calibration_is_refused_by_its_field(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "cascade.json"
    write_cascade(path, calibrated(300))
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(CorruptModelError, match=field):
        read_cascade(path)


def test_a_missing_calibration_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="none"):
        read_cascade(tmp_path / "none")
