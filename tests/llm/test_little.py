"""A little model that writes, through the Python front door: modes, reports, certificates, refusals by name."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import LLM, InvalidRequestError, RequestOptions, RequestOutput, SamplingParams
from offramp.errors import CorruptModelError
from offramp.llm.loading import LoadedModel
from offramp.llm.promises import Promises
from offramp.llm.serving import Serving
from offramp.params import StructuredOutputsParams
from tests.llm.test_draft_model import write_model
from tests.llm.writing import certify, little_model, pair, writes

PROMPTS = ["Water boils at", "x", "hello hello hello " * 5]
GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=1, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.9, seed=5, max_tokens=24, logprobs=1, ignore_eos=True)


@pytest.fixture
def little(tmp_path: Path) -> Path:
    return little_model(tmp_path)


@pytest.fixture
def loaded(toy_path: Path, little: Path, own_cache: Path) -> LoadedModel:
    return pair(toy_path, little)


@pytest.fixture
def llm(loaded: LoadedModel, little: Path) -> Iterator[LLM]:
    with LLM.from_loaded(loaded, writes(little, rollback=1e6, fallback=0.0, max_run=64)) as llm:
        yield llm


def said(outputs: list[RequestOutput]) -> list[object]:
    return [(output.outputs[0].token_ids, output.outputs[0].text) for output in outputs]


def asked(mode: str, **options: object) -> RequestOptions:
    return RequestOptions(mode=mode, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_each_request_chooses_who_writes(llm: LLM, little: Path, params: SamplingParams) -> None:
    plain = llm.generate(PROMPTS, params)
    assert {output.report.little for output in plain} == {None}
    assert llm.statistics.num_little_tokens == 0
    written = llm.generate(PROMPTS, params, asked("unchecked", report="tokens"))
    alone = LLM(little, threads=1, draft="off").generate(PROMPTS, params)
    assert said(written) == said(alone)
    assert said(written) != said(plain)
    for output in written:
        report = output.report
        assert (report.mode, report.little, report.num_little_tokens) == ("unchecked", str(little), 24)
        assert (report.draft, report.num_drafts, report.num_draft_tokens) == ("off", 0, 0)
        assert report.exact_kv
        assert report.mean_exit_layer == 4.0
        assert output.outputs[0].drafted == [True] * 24
    differing = sum(output.report.num_differing_tokens for output in written)
    assert 0 < differing == llm.statistics.num_differing_tokens <= llm.statistics.num_little_tokens == 72
    assert said(llm.generate(PROMPTS, params, asked("full"))) == said(plain)


@pytest.mark.parametrize("settings", [{"rollback": 0.0, "fallback": 0.0}, {"rollback": 1e6, "fallback": 1.0}])
def test_its_limits_are_plain_decoding(loaded: LoadedModel, little: Path, settings: dict[str, float]) -> None:
    with LLM.from_loaded(loaded, writes(little, "unchecked", **settings)) as llm:
        for params in (GREEDY, DRAWN):
            assert said(llm.generate(PROMPTS, params)) == said(llm.generate(PROMPTS, params, asked("lossless")))


def test_streams_and_stop_strings_end_where_they_should(llm: LLM) -> None:
    whole = llm.generate("x", GREEDY, asked("unchecked"))[0].outputs[0]
    stop = next(letter for letter in whole.text[3:] if letter.isascii() and letter.isprintable())
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop=(stop,))
    stopped = llm.generate("x", params, asked("unchecked"))[0].outputs[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == whole.text[: whole.text.index(stop)]
    with llm.stream("x", params, asked("unchecked")) as stream:
        deltas = list(stream)
    assert "".join(delta.text for delta in deltas) == stopped.text
    report = deltas[-1].report
    assert report is not None
    assert report.num_little_tokens == sum(delta.num_accepted_tokens for delta in deltas) > 0


def test_the_same_draft_model_still_drafts_for_lossless_requests(llm: LLM) -> None:
    plain = llm.generate(PROMPTS, GREEDY)
    assert said(llm.generate(PROMPTS, GREEDY, RequestOptions(draft="model"))) == said(plain)
    llm.generate(PROMPTS, GREEDY, asked("unchecked"))
    assert said(llm.generate(PROMPTS, GREEDY, RequestOptions(draft="model,suffix"))) == said(plain)


def test_a_certified_risk_decides_how_much_it_writes(loaded: LoadedModel, little: Path, tmp_path: Path) -> None:
    path = certify(loaded, tmp_path / "mine.json", 0.02, 0.1)
    with LLM.from_loaded(loaded, writes(little, "calibrated", risk=0.1, calibration=path)) as llm:
        outputs = llm.generate(PROMPTS, GREEDY)
        assert [(o.report.mode, o.report.risk, o.report.num_little_tokens) for o in outputs] == [
            ("calibrated", 0.1, 24)
        ] * 3
        [some] = llm.generate("x", GREEDY, asked("calibrated", risk=0.05))
        assert (some.report.risk, some.report.little) == (0.02, str(little))
        assert 0 < some.report.num_little_tokens < 24
        assert some.report.num_little_tokens + some.report.num_fallbacks + some.report.num_rollbacks == 24
        for params, reason in [
            (DRAWN, "temperature=0.9 differs from the calibration's 0"),
            (SamplingParams(temperature=0, max_tokens=65, ignore_eos=True), "max_tokens=65 is above"),
        ]:
            [alone] = llm.generate("x", params)
            assert (alone.report.mode, alone.report.little, alone.report.num_little_tokens) == ("full", None, 0)
            assert alone.report.mode_reason is not None
            assert reason in alone.report.mode_reason
        with pytest.raises(InvalidRequestError, match=r"risk=0\.01 is not certified"):
            llm.generate("x", GREEDY, asked("calibrated", risk=0.01))
        with pytest.raises(InvalidRequestError, match="no thresholds were set") as caught:
            llm.generate("x", GREEDY, asked("unchecked"))
        assert "little_rollback" in caught.value.hint


def test_the_certificate_is_told_in_a_line(loaded: LoadedModel, little: Path, tmp_path: Path) -> None:
    path = certify(loaded, tmp_path / "mine.json", 0.05)
    told = Promises(loaded, writes(little, "calibrated", risk=0.05, calibration=path)).certificate()
    assert told == (
        f"mode calibrated: risk 0.05 with 75% of the tokens by {little} for temperature=0, ignore_eos=1 and "
        "max_tokens up to 64; other requests get the big model alone"
    )
    certify(loaded, path, 0.05, gain=0.9)
    slow = Promises(loaded, writes(little, "calibrated", risk=0.05, calibration=path))
    assert slow.certificate() == (
        "mode calibrated: no certified policy is faster than the big model alone, which then answers"
    )


def test_another_pairs_calibration_is_refused_with_what_makes_one(
    toy_path: Path, loaded: LoadedModel, little: Path, tmp_path: Path
) -> None:
    path = certify(loaded, tmp_path / "mine.json", 0.05)
    path.write_text(path.read_text().replace('"little_kv": "f16"', '"little_kv": "f32"'))
    with pytest.raises(InvalidRequestError, match="little_kv is 'f16', it was measured with 'f32'") as caught:
        Promises(loaded, writes(little, "calibrated", risk=0.05, calibration=path))
    command = f"offramp calibrate {toy_path} --draft-model {little} --prompts FILE --risk 0.05 --output FILE"
    assert caught.value.hint == command
    raw = LLM.from_loaded(loaded, writes(little, rollback=3.0))
    with pytest.raises(InvalidRequestError, match="no little_calibration was given"):
        raw.generate("x", GREEDY, asked("calibrated", risk=0.05))


def test_a_misfit_beside_raw_settings_is_told(
    loaded: LoadedModel, little: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = certify(loaded, tmp_path / "mine.json", 0.05)
    path.write_text(path.read_text().replace('"little_kv": "f16"', '"little_kv": "f32"'))
    with (
        caplog.at_level(logging.WARNING),
        LLM.from_loaded(loaded, writes(little, "unchecked", rollback=3.0, calibration=path)) as llm,
    ):
        assert llm.generate("x", GREEDY)[0].report.mode == "unchecked"
    assert "there is no mode calibrated" in caplog.text


def test_a_broken_calibration_is_named(loaded: LoadedModel, little: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("{}")
    with pytest.raises(CorruptModelError, match=r"mine\.json"):
        LLM.from_loaded(loaded, writes(little, rollback=3.0, calibration=path))


@pytest.mark.parametrize(
    ("settings", "message", "param"),
    [
        ({"little_rollback": 3.0}, "little_rollback needs draft_model", "little_rollback"),
        ({"little_fallback": 0.5, "draft_model": "m"}, "little_fallback needs little_rollback", "little_fallback"),
        ({"max_little": 5, "draft_model": "m"}, "max_little needs little_rollback", "max_little"),
        ({"little_rollback": math.nan, "draft_model": "m"}, "little_rollback=nan is impossible", "little_rollback"),
        ({"mode": "unchecked", "draft_model": "m"}, "mode='unchecked' needs an exit pack", "mode"),
        (
            {"mode": "calibrated", "little_rollback": 3.0, "draft_model": "m", "risk": 0.1},
            "mode='calibrated' needs little_calibration",
            "mode",
        ),
        ({"little_rollback": 3.0, "draft_model": "m", "risk": 0.1}, "risk needs exits", "risk"),
        (
            {"mode": "unchecked", "little_rollback": 3.0, "draft_model": "m", "draft": "model"},
            "runs no drafts",
            "draft",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_looked_for(
    settings: dict[str, object], message: str, param: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        LLM("no-such-model", **settings)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert caught.value.hint


def test_it_stands_beside_no_exits(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    with pytest.raises(InvalidRequestError, match="little_rollback beside exits"):
        LLM("no-such-model", draft_model="m", little_rollback=3.0, exits=tmp_path / "pack")


def test_another_vocabulary_is_refused_b64(toy_path: Path, tmp_path: Path, own_cache: Path) -> None:
    other = write_model(tmp_path / "other.gguf", renamed=True)
    with pytest.raises(InvalidRequestError, match="another vocabulary"):
        LLM(toy_path, threads=1, draft_model=other, little_rollback=3.0, mode="unchecked")


def test_a_grammar_is_refused_by_name(llm: LLM) -> None:
    bound = SamplingParams(structured_outputs=StructuredOutputsParams(choice=("yes", "no")))
    with pytest.raises(InvalidRequestError, match="the little model doesn't know the grammar"):
        llm.generate("x", bound, asked("unchecked"))


def test_thresholds_order_who_writes_b128(loaded: LoadedModel, little: Path) -> None:
    """From all of it to nothing, and what is told agrees with what was counted."""
    shares = []
    for fallback in (0.0, 0.1, 0.3, 1.0):
        with LLM.from_loaded(loaded, writes(little, "unchecked", rollback=1e6, fallback=fallback)) as llm:
            outputs = llm.generate(PROMPTS, GREEDY)
            told = sum(output.report.num_little_tokens for output in outputs)
            assert told == llm.statistics.num_little_tokens
            assert told + llm.statistics.num_big_tokens == 72
            shares.append(told / 72)
    assert shares[0] > 0.9
    assert shares[-1] == 0.0
    assert len(set(shares)) > 2


def test_answers_are_identified_by_what_may_change_them(loaded: LoadedModel, little: Path) -> None:
    settings = ({}, {"rollback": 3.0}, {"rollback": 4.0}, {"rollback": 4.0, "fallback": 0.5})
    identities = [
        Promises(loaded, writes(little, **each) if each else Serving(draft_model=little)).identity for each in settings
    ]
    assert len(set(identities)) == len(identities)
