"""A pipeline of two models that write one answer: the big model's host under a name with a mode of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offramp.collaborate.pipeline.spec import read_pipelines
from offramp.errors import InvalidRequestError
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.llm.starting import ModelStart
from offramp.serve.pair import check_starts, with_mode
from offramp.serve.pipelines import Pipelines, load_pipeline
from tests.llm.writing import certify, little_model, pair, writes
from tests.serve.asking import CHAT, COMPLETIONS, messages
from tests.serve.hosting import Scripted, hosting
from tests.serve.piping import PipeApi, series

BODY: dict[str, Any] = {
    "model": "swift",
    "prompt": "hello",
    "temperature": 0,
    "max_tokens": 12,
    "ignore_eos": True,
}
RESPONSES = "/v1/responses"


@pytest.fixture
def little(tmp_path: Path) -> Path:
    return little_model(tmp_path)


@pytest.fixture
def loaded(toy_path: Path, little: Path, own_cache: Path) -> LoadedModel:
    return pair(toy_path, little)


def swift(**options: Any) -> dict[str, object]:
    return {"swift": {"little": "mini", "big": "large", "policy": "big_little", **options}}


@contextmanager
def pairing(loaded: LoadedModel, serving: Serving, content: dict[str, object]) -> Iterator[PipeApi]:
    runner = asyncio.Runner()
    pipelines = [load_pipeline(spec) for spec in read_pipelines(content, Path())]
    try:
        with hosting(Scripted("large", when="start", make=lambda: loaded, serving=serving)) as models:
            models.load_at_start()
            yield PipeApi(models, Pipelines(pipelines, models), runner)
    finally:
        runner.close()


@pytest.fixture
def api(loaded: LoadedModel, little: Path, tmp_path: Path) -> Iterator[PipeApi]:
    path = certify(loaded, tmp_path / "mine.json", 0.02, 0.1)
    serving = writes(little, calibration=path, rollback=1e6, fallback=0.0)
    with pairing(loaded, serving, {**swift(risk=0.1), "raw": swift()["swift"]}) as api:
        yield api


def test_requests_to_the_name_are_calibrated_at_its_risk(api: PipeApi, little: Path) -> None:
    response = api.post(COMPLETIONS, BODY)
    answer = response.json()
    asked = {"mode": "calibrated", "risk": 0.1}
    alone = api.answer(COMPLETIONS, **{**BODY, "model": "large", "offramp": asked})
    assert answer["choices"] == alone["choices"]
    report = answer["offramp"]
    assert (report["mode"], report["risk"], report["little"]) == ("calibrated", 0.1, str(little))
    assert report["num_little_tokens"] == 12
    assert report["pipeline"] == {
        "name": "swift",
        "policy": "big_little",
        "answered_by": "pair",
        "model": "large",
        "score": None,
        "threshold": None,
        "risk": 0.1,
        "reason": None,
    }
    assert answer["model"] == "swift"
    assert response.headers["x-offramp-answered-by"] == "large"
    assert api.answer(COMPLETIONS, **{**BODY, "model": "large"})["offramp"]["mode"] == "lossless"


def test_every_route_whole_and_as_a_stream(api: PipeApi) -> None:
    chat = {"model": "swift", "temperature": 0, "max_tokens": 8, "ignore_eos": True, "messages": messages("hello")}
    whole = api.answer(CHAT, **chat)
    chunks = api.stream(CHAT, **chat)
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["offramp"]["pipeline"]["answered_by"] == "pair"
    body = {"model": "swift", "temperature": 0, "max_output_tokens": 8, "input": "hello"}
    told = api.answer(RESPONSES, **body)["offramp"]
    assert told["pipeline"]["name"] == "swift"
    assert told["mode"] == "full", "ignore_eos, which Responses lacks, is part of the certificate"
    assert "ignore_eos" in told["pipeline"]["reason"]


@pytest.mark.parametrize(
    ("options", "mode", "who", "risk"),
    [
        ({}, "calibrated", "pair", 0.1),
        ({"risk": 0.02}, "calibrated", "pair", 0.02),
        ({"mode": "calibrated"}, "calibrated", "pair", 0.1),
        ({"mode": "lossless"}, "lossless", "big", None),
        ({"mode": "unchecked"}, "unchecked", "pair", None),
        ({"mode": None, "report": "tokens"}, "calibrated", "pair", 0.1),
    ],
)
def test_what_a_request_asks_for_wins(
    options: dict[str, Any], mode: str, who: str, risk: float | None, api: PipeApi
) -> None:
    told = api.answer(COMPLETIONS, **{**BODY, "offramp": options})["offramp"]
    assert told["mode"] == mode
    assert (told["pipeline"]["answered_by"], told["pipeline"]["risk"]) == (who, risk)


def test_what_the_certificate_does_not_cover_the_big_model_answers_alone(api: PipeApi) -> None:
    told = api.answer(COMPLETIONS, **{**BODY, "temperature": 0.5})["offramp"]
    assert (told["mode"], told["num_little_tokens"]) == ("full", 0)
    assert told["pipeline"]["answered_by"] == "big"
    assert told["pipeline"]["reason"] == told["mode_reason"] == "temperature=0.5 differs from the calibration's 0"


def test_without_a_risk_the_raw_settings_of_the_start_hold(api: PipeApi) -> None:
    told = api.answer(COMPLETIONS, **{**BODY, "model": "raw"})["offramp"]
    assert (told["mode"], told["pipeline"]["answered_by"]) == ("unchecked", "pair")
    assert told["num_little_tokens"] > 5
    both = api.answer(COMPLETIONS, **{**BODY, "model": "raw", "prompt": ["hello", "hello"]})
    one, other = (choice["text"] for choice in both["choices"])
    assert one == other


@pytest.mark.parametrize("stream", [False, True])
def test_where_the_little_model_writes_nothing_the_big_one_answered(
    stream: bool, loaded: LoadedModel, little: Path
) -> None:
    with pairing(loaded, writes(little, rollback=3.0, fallback=1.0), swift()) as api:
        told = (api.stream(COMPLETIONS, **BODY)[-1] if stream else api.answer(COMPLETIONS, **BODY))["offramp"]
        assert (told["mode"], told["num_little_tokens"]) == ("unchecked", 0)
        assert told["pipeline"]["answered_by"] == "big"
        assert told["pipeline"]["reason"] == "the little model wrote none of it"
        assert series(api, "pipeline_requests_total", answered_by="pair") == [0]
        assert series(api, "pipeline_requests_total", answered_by="big") == [1]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"offramp": {"mode": "swift"}}, "offramp.mode"),
        ({"offramp": {"risk": 0.001}}, "offramp.risk"),
        ({"offramp": {"draft": "ngram"}}, "offramp.draft"),
        ({"offramp": "fast"}, "offramp"),
        ({"temperature": -1}, "temperature"),
        ({"model": "raw", "offramp": {"risk": 0.1}}, "offramp.risk"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": False}, "offramp.mode"),
    ],
)
def test_what_the_big_model_would_refuse_the_pair_refuses(body: dict[str, Any], param: str, api: PipeApi) -> None:
    assert api.refusal(COMPLETIONS, {**BODY, **body})["param"] == param
    assert sum(series(api, "pipeline_requests_total")) == 0


def test_metrics_and_cards_tell_of_it(api: PipeApi) -> None:
    api.answer(COMPLETIONS, **BODY)
    api.answer(COMPLETIONS, **{**BODY, "offramp": {"mode": "full"}})
    assert series(api, "pipeline_requests_total", pipeline="swift", answered_by="pair") == [1]
    assert series(api, "pipeline_requests_total", pipeline="swift", answered_by="big") == [1]
    assert series(api, "pipeline_requests_total", answered_by="little") == []
    for name in ("pipeline_big_share", "pipeline_calibrated_big_share", "pipeline_drifted"):
        assert series(api, name) == []
    cards = {card["id"]: card for card in api.get("/v1/models").json()["data"]}
    assert set(cards) == {"large", "swift", "raw"}
    assert cards["swift"]["max_model_len"] == cards["large"]["max_model_len"]
    assert cards["swift"]["pipeline"] == {
        "policy": "big_little",
        "little": "mini",
        "big": "large",
        "remote": False,
        "threshold": None,
        "risk": 0.1,
        "calibrated_big_share": None,
        "achieved_big_share": None,
    }


def test_what_the_pair_can_not_keep_is_refused_at_the_start(
    loaded: LoadedModel, little: Path, tmp_path: Path, api: PipeApi
) -> None:
    api.pipelines.check()
    path = certify(loaded, tmp_path / "mine.json", 0.1)
    for content, message in (
        (swift(risk=0.05), r"risk=0\.05 is not certified"),
        (swift(), "no thresholds were set"),
    ):
        with (
            pairing(loaded, writes(little, calibration=path), content) as other,
            pytest.raises(InvalidRequestError, match=f"pipeline 'swift': .*{message}"),
        ):
            other.pipelines.check()


@pytest.mark.parametrize(
    ("serving", "pipeline", "message"),
    [
        ({}, {"risk": 0.1}, "big='large' is started without a draft model"),
        ({"draft_model": "other"}, {"risk": 0.1}, "has the draft model 'other', not 'mini'"),
        ({"draft_model": "mini"}, {"risk": 0.1}, "without little_calibration"),
        ({"draft_model": "mini", "rollback": 3.0}, {"risk": 0.1}, "without little_calibration"),
        ({"draft_model": "mini"}, {}, "without little_rollback, and no risk"),
        ({"draft_model": "mini", "calibration": True}, {}, "without little_rollback, and no risk"),
        ({"draft_model": "mini", "calibration": True}, {"risk": 0.1}, None),
        ({"draft_model": "mini", "rollback": 3.0}, {}, None),
        ({"draft_model": "m.gguf", "rollback": 3.0}, {"little": "small"}, None),
        ({"draft_model": "n.gguf", "rollback": 3.0}, {"little": "small"}, "the draft model 'n.gguf', not 'small'"),
    ],
)
def test_the_start_of_the_big_model_is_looked_at_before_anything_is_loaded(
    serving: dict[str, Any], pipeline: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text("{}")
    path = tmp_path / "c.json" if serving.get("calibration") else None
    settings = LittleSettings(rollback=serving.get("rollback"), calibration=path)
    starts = {
        "large": ModelStart(model="b.gguf", serving=Serving(draft_model=serving.get("draft_model"), little=settings)),
        "small": ModelStart(model="m.gguf", serving=Serving()),
    }
    specs = read_pipelines(swift(**pipeline), Path())
    if message is None:
        check_starts(specs, starts)
        return
    with pytest.raises(InvalidRequestError, match=f"pipeline 'swift': .*{message}") as caught:
        check_starts(specs, starts)
    assert caught.value.hint


def test_a_body_gets_the_mode_that_it_lacks() -> None:
    [risky, raw] = read_pipelines({**swift(risk=0.1), "raw": swift()["swift"]}, Path())
    assert with_mode({"n": 1}, risky) == {"n": 1, "offramp": {"mode": "calibrated", "risk": 0.1}}
    assert with_mode({"offramp": None}, raw) == {"offramp": {"mode": "unchecked"}}
    assert with_mode({"offramp": {"mode": "full"}}, risky) == {"offramp": {"mode": "full"}}
    assert with_mode({"offramp": 5}, risky) == {"offramp": 5}
