"""Two models behind one name: the right one answers, as it would alone, and the answer says who it was."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.collaborate.cascade.calibration import CascadeCalibration, write_cascade
from offramp.collaborate.threshold import CertifiedThreshold, ThresholdCalibration
from offramp.errors import InvalidRequestError, ModelNotFoundError, ResourceError
from offramp.exits.certificate import SamplingSettings
from offramp.testing.models import chat_tokenizer
from tests.serve.asking import CHAT, COMPLETIONS, chunks_of, listening, messages
from tests.serve.piping import (
    HASH,
    SURE,
    UNSURE,
    UNSURE_NEED,
    PipeApi,
    cascade,
    little_model,
    piping,
    write_length_router,
)

RESPONSES = "/v1/responses"
GREEDY: dict[str, object] = {"model": "smart", "temperature": 0, "max_tokens": 8}


@pytest.fixture
def api() -> Iterator[PipeApi]:
    with piping(cascade(threshold=0.5)) as api:
        yield api


def said(api: PipeApi, prompt: str, **body: object) -> tuple[str, dict[str, Any]]:
    """The text, and what is told of the pipeline."""
    answer = api.answer(COMPLETIONS, **{**GREEDY, "prompt": prompt, **body})
    return answer["choices"][0]["text"], answer["offramp"]["pipeline"]


def series(api: PipeApi, name: str, **labels: str) -> list[float]:
    families = text_string_to_metric_families(api.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == f"offramp:{name}"]
    return [each.value for each in samples if labels.items() <= each.labels.items()]


def test_sure_answers_stay_and_others_come_from_the_big_model(api: PipeApi) -> None:
    text, told = said(api, SURE)
    assert (text, told["answered_by"], told["model"]) == ("one", "little", "small")
    assert told["score"] < 0.01
    text, told = said(api, UNSURE)
    assert (text, told["answered_by"], told["model"]) == ("two", "big", "large")
    assert told["score"] == pytest.approx(UNSURE_NEED, abs=1e-3)
    assert (told["name"], told["policy"], told["threshold"]) == ("smart", "cascade", 0.5)


@pytest.mark.parametrize(("threshold", "texts"), [(0.0, ["two", "two"]), (1.0, ["one", "one"])])
def test_b128_the_ends_of_the_threshold_ask_always_and_never(threshold: float, texts: list[str]) -> None:
    with piping(cascade(threshold=threshold)) as api:
        assert [said(api, prompt)[0] for prompt in (SURE, UNSURE)] == texts
        [share] = series(api, "pipeline_big_share", pipeline="smart")
        assert share == 1 - threshold


@pytest.mark.parametrize(("prompt", "text", "who"), [(SURE, "one", "small"), (UNSURE, "two", "large")])
def test_every_route_whole_and_as_a_stream(prompt: str, text: str, who: str, api: PipeApi) -> None:
    body = {"model": "smart", "temperature": 0}
    response = api.post(CHAT, {**body, "messages": messages(prompt)})
    answer = response.json()
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("smart", text)
    assert answer["choices"][0]["logprobs"] is None
    assert response.headers["x-offramp-answered-by"] == who
    chunks = api.stream(CHAT, **body, messages=messages(prompt))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert {chunk["model"] for chunk in chunks} == {"smart"}
    assert chunks[-1]["offramp"]["pipeline"]["model"] == who
    response = api.answer(RESPONSES, **body, input=prompt)
    assert (response["model"], response["output"][0]["content"][0]["text"]) == ("smart", text)
    assert response["offramp"]["pipeline"]["model"] == who


def test_an_answer_is_the_same_as_the_models_own(api: PipeApi) -> None:
    for prompt, model in ((SURE, "small"), (UNSURE, "large")):
        body = {**GREEDY, "prompt": prompt, "logprobs": 2, "n": 2}
        piped, alone = api.answer(COMPLETIONS, **body), api.answer(COMPLETIONS, **{**body, "model": model})
        assert piped["choices"] == alone["choices"]
        assert piped["usage"] == alone["usage"]


def test_models_answer_under_their_own_names_as_ever(api: PipeApi) -> None:
    answer = api.answer(COMPLETIONS, **{**GREEDY, "model": "small", "prompt": UNSURE})
    assert (answer["model"], answer["choices"][0]["text"]) == ("small", "one")
    assert "pipeline" not in answer["offramp"]
    assert api.answer(COMPLETIONS, prompt=SURE, temperature=0)["model"] == "small"
    assert api.refusal(COMPLETIONS, {"model": "huge", "prompt": "x"}, 404)["code"] == "model_not_found"


def test_what_a_model_would_refuse_a_pipeline_refuses(api: PipeApi) -> None:
    assert api.refusal(COMPLETIONS, {**GREEDY, "prompt": SURE, "temperature": -1})["param"] == "temperature"
    assert api.refusal(COMPLETIONS, {**GREEDY, "prompt": [SURE, UNSURE]})["param"] == "prompt"
    assert api.refusal(CHAT, {"model": "smart"})["param"] == "messages"
    assert series(api, "pipeline_requests_total") == [0, 0]


def test_no_report_is_no_report(api: PipeApi) -> None:
    body = {**GREEDY, "prompt": SURE, "offramp": {"report": "none"}}
    response = api.post(COMPLETIONS, body)
    assert "offramp" not in response.json()
    assert response.headers["x-offramp-answered-by"] == "small"


@pytest.mark.parametrize("score", ["quantile", "agreement"])
def test_other_scores(score: str) -> None:
    with piping(cascade(threshold=0.3, score=score)) as api:
        assert said(api, SURE)[0] == "one"
        text, told = said(api, UNSURE)
        assert (text, told["answered_by"]) == ("two", "big")


def test_metrics_tell_who_answered(api: PipeApi) -> None:
    for prompt in (SURE, SURE, UNSURE):
        said(api, prompt)
    assert series(api, "pipeline_requests_total", pipeline="smart", answered_by="little") == [2]
    assert series(api, "pipeline_requests_total", pipeline="smart", answered_by="big") == [1]
    assert series(api, "pipeline_big_share") == [pytest.approx(1 / 3)]
    assert series(api, "pipeline_calibrated_big_share") == []
    assert sum(series(api, "http_requests_total", route=COMPLETIONS, status="200")) == 3


def test_a_pipeline_is_listed_with_the_models(api: PipeApi) -> None:
    cards = {card["id"]: card for card in api.get("/v1/models").json()["data"]}
    assert set(cards) == {"small", "large", "smart"}
    said(api, UNSURE)
    card = api.get("/v1/models/smart").json()
    assert card["pipeline"]["achieved_big_share"] == 1.0
    assert card["max_model_len"] == api.get("/v1/models/small").json()["max_model_len"]


def certified(tmp_path: Path, **changes: Any) -> Path:
    entry = CertifiedThreshold(
        risk=0.1, delta=0.05, threshold=0.5, big_share=0.5, num_prompts=100, mean_loss=0.01, p_value=0.01
    )
    values: dict[str, Any] = {"model": HASH, "score": "mean", "sampling": SamplingSettings(), "max_tokens": 16}
    thresholds = ThresholdCalibration(scores=np.array([0.1, 0.2, 0.6, 0.7]), certified=(entry,))
    path = tmp_path / "cascade.json"
    write_cascade(path, CascadeCalibration(**{**values, "thresholds": thresholds, **changes}))
    return path


def test_a_certified_threshold_holds_for_what_it_was_measured_on(tmp_path: Path) -> None:
    certified(tmp_path)
    with piping(cascade(risk=0.15, calibration="cascade.json"), folder=tmp_path) as api:
        text, told = said(api, SURE)
        assert (text, told["risk"], told["threshold"], told["reason"]) == ("one", 0.1, 0.5, None)
        for change, reason in (({"temperature": 0.5}, "temperature"), ({"max_tokens": 17}, "max_tokens")):
            text, told = said(api, SURE, **change)
            assert told["answered_by"] == "big"
            assert reason in told["reason"]


def test_a_share_is_that_of_the_calibration(tmp_path: Path) -> None:
    certified(tmp_path)
    with piping(cascade(big_share=0.5, calibration="cascade.json"), folder=tmp_path) as api:
        assert [said(api, prompt)[0] for prompt in (SURE, UNSURE)] == ["one", "two"]
        assert series(api, "pipeline_calibrated_big_share") == [0.5]


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"risk": 0.05}, {}, r"risk=0\.05 is not certified"),
        ({"risk": 0.1, "score": "quantile"}, {}, "score='quantile'"),
    ],
)
def test_what_a_calibration_does_not_hold_is_refused_at_the_start(
    options: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    certified(tmp_path, **changes)
    with (
        pytest.raises(InvalidRequestError, match=f"pipeline 'smart': .*{message}"),
        piping(cascade(**options, calibration="cascade.json"), folder=tmp_path),
    ):
        pass


def test_files_of_another_little_model_are_refused(tmp_path: Path) -> None:
    certified(tmp_path, model="cd" * 32)
    with piping(cascade(risk=0.1, calibration="cascade.json"), folder=tmp_path) as api:
        api.models.load_at_start()
        assert "belongs to a little model" in api.refusal(COMPLETIONS, {**GREEDY, "prompt": SURE})["message"]
        with pytest.raises(InvalidRequestError, match="pipeline 'smart'"):
            api.pipelines.check()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ModelNotFoundError, match="pipeline 'smart'"),
        piping(cascade(risk=0.1, calibration="none.json"), folder=tmp_path),
    ):
        pass


def route(**options: Any) -> dict[str, object]:
    return {"smart": {"little": "small", "big": "large", "policy": "route", "router": "router", **options}}


@pytest.fixture
def routed(tmp_path: Path) -> Path:
    """Prompts of more than three tokens are for the big model."""
    config = little_model().config
    write_length_router(tmp_path / "router", config.hidden_size, config.num_layers, at=3)
    return tmp_path


def test_a_router_decides_before_anybody_answers(routed: Path) -> None:
    with piping(route(threshold=0.5), folder=routed) as api:
        text, told = said(api, SURE)
        assert (text, told["answered_by"]) == ("one", "little")
        assert api.models.find("large").state == "unloaded"
        before = series(api, "generation_tokens_total", model_name="small")
        text, told = said(api, UNSURE)
        assert (text, told["answered_by"]) == ("two", "big")
        length = len(chat_tokenizer().encode(UNSURE))
        assert told["score"] == pytest.approx(1 / (1 + np.exp(3 - length)))
        assert series(api, "generation_tokens_total", model_name="small") == before
        chunks = api.stream(COMPLETIONS, **{**GREEDY, "prompt": UNSURE})
        assert chunks[-1]["offramp"]["pipeline"]["answered_by"] == "big"


def test_a_routers_share_and_risk(routed: Path) -> None:
    with piping(route(big_share=0.25), folder=routed) as api:
        assert said(api, SURE)[1]["threshold"] == pytest.approx(0.9)
        assert series(api, "pipeline_calibrated_big_share") == [0.25]
    with piping(route(risk=0.2), folder=routed) as api:
        assert said(api, SURE)[1]["risk"] == 0.1


def test_a_router_waits_for_pages_while_others_have_them(routed: Path) -> None:
    """Many at once on few pages all get their scores."""
    with piping(route(threshold=0.5), folder=routed) as api:
        assert said(api, SURE)[0] == "one"

        async def ask(client: httpx2.AsyncClient, prompt: str) -> str:
            response = await client.post(COMPLETIONS, json={**GREEDY, "prompt": prompt})
            return str(response.json()["choices"][0]["text"])

        async def all_at_once() -> list[str]:
            transport = httpx2.ASGITransport(app=api.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await asyncio.gather(*(ask(client, prompt) for prompt in (SURE, UNSURE) * 8))

        assert api._runner.run(all_at_once()) == ["one", "two"] * 8


def test_drift_is_told_once(routed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with piping(route(big_share=0.25), folder=routed) as api, caplog.at_level(logging.WARNING):
        for _ in range(120):
            api.pipeline("smart").decided(True)
        assert series(api, "pipeline_drifted") == [1.0]
        assert len([record for record in caplog.records if "calibrate it again" in record.getMessage()]) == 1


# The big model elsewhere.


def elsewhere(policy: dict[str, Any] | None = None, **options: Any) -> dict[str, object]:
    big = {"url": "http://127.0.0.1:9/v1", "model": "huge", **options}
    return {"smart": {"little": "small", "big": big, "policy": "cascade", **(policy or {"threshold": 0.5})}}


class Endpoint:
    """Answers in turn; the last answer stays."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def good() -> httpx2.Response:
    body = {"model": "huge", "choices": [{"index": 0, "text": "far", "finish_reason": "stop"}], "usage": {}}
    return httpx2.Response(200, json=body)


def test_a_big_model_elsewhere_answers_what_it_is_asked() -> None:
    endpoint = Endpoint(good())
    with piping(elsewhere(), endpoint=endpoint, with_big=False) as api:
        assert said(api, SURE)[0] == "one"
        assert endpoint.requests == []
        text, told = said(api, UNSURE, offramp={"report": "summary"})
        assert (text, told["answered_by"], told["model"]) == ("far", "big", "huge")
        [request] = endpoint.requests
        assert str(request.url) == "http://127.0.0.1:9/v1/completions"
        assert json.loads(request.content) == {**GREEDY, "model": "huge", "prompt": UNSURE}


def test_a_stream_from_elsewhere_is_passed_on() -> None:
    events = [{"choices": [{"index": 0, "text": each, "finish_reason": None}]} for each in ("fa", "r")]
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(200, content=data))) as api:
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True})
        assert response.headers["x-offramp-answered-by"] == "huge"
        assert response.headers["content-type"].startswith("text/event-stream")
        assert chunks_of(response.text) == events


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "sesame")
    endpoint = Endpoint(good())
    with piping(elsewhere(key_env="BIG_KEY"), endpoint=endpoint) as api:
        said(api, UNSURE)
        assert endpoint.requests[0].headers["authorization"] == "Bearer sesame"
    monkeypatch.delenv("BIG_KEY")
    with pytest.raises(InvalidRequestError, match="BIG_KEY is not set"), piping(elsewhere(key_env="BIG_KEY")):
        pass


@pytest.mark.parametrize("first", [httpx2.Response(503), httpx2.Response(429), httpx2.ConnectError("refused")])
def test_what_fails_once_is_tried_again(first: httpx2.Response | Exception) -> None:
    endpoint = Endpoint(first, good())
    with piping(elsewhere(retries=1), endpoint=endpoint) as api:
        assert said(api, UNSURE)[0] == "far"
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("answer", "code", "tries"),
    [
        (httpx2.Response(500), "endpoint_failed", 3),
        (httpx2.Response(401), "endpoint_failed", 1),
        (httpx2.Response(302), "endpoint_failed", 1),
        (httpx2.ConnectError("refused"), "endpoint_unreachable", 3),
        (httpx2.ReadTimeout("slow"), "endpoint_timeout", 1),
        (httpx2.Response(200, text="hello"), "endpoint_failed", 1),
    ],
)
def test_an_endpoint_that_fails_is_no_silent_fall_back(
    answer: httpx2.Response | Exception, code: str, tries: int
) -> None:
    endpoint = Endpoint(answer)
    with piping(elsewhere(), endpoint=endpoint) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE}, 503)
        assert error["code"] == code
        assert len(endpoint.requests) == tries
        assert series(api, "pipeline_failures_total") == [1]
        assert said(api, SURE)[0] == "one"


def test_a_stream_that_fails_before_its_first_bytes_has_a_status() -> None:
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(500))) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True}, 503)
        assert error["code"] == "endpoint_failed"


async def first_of(end: Exception | None, closed: threading.Event) -> AsyncIterator[bytes]:
    """A piece, then a failure, or nothing more for long."""
    try:
        yield b'data: {"choices": []}\n\n'
        if end is not None:
            raise end
        await asyncio.sleep(60)
    finally:
        closed.set()


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    broken = httpx2.Response(200, content=first_of(httpx2.ReadError("gone"), threading.Event()))
    with piping(elsewhere(), endpoint=Endpoint(broken)) as api:
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE, "stream": True})
        first, last = chunks_of(response.text)
        assert first == {"choices": []}
        assert last["error"]["code"] == "endpoint_failed"
        assert "broke off" in last["error"]["message"]


def test_a_client_that_goes_takes_the_endpoints_stream_along() -> None:
    closed = threading.Event()
    slow = httpx2.Response(200, content=first_of(None, closed))
    with piping(elsewhere(), endpoint=Endpoint(slow)) as api, listening(api.app) as url:
        body = {**GREEDY, "prompt": UNSURE, "stream": True}
        with (
            httpx2.Client(trust_env=False) as client,
            client.stream("POST", f"{url}{COMPLETIONS}", json=body) as answer,
        ):
            assert answer.status_code == 200
            assert next(answer.iter_lines()).startswith("data: ")
            assert not closed.is_set()
        assert closed.wait(10)


def test_what_an_endpoint_refuses_is_told_in_its_words() -> None:
    refused = httpx2.Response(422, json={"error": {"message": "top_k is unknown here"}})
    with piping(elsewhere(), endpoint=Endpoint(refused)) as api:
        error = api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE}, 422)
        assert "top_k is unknown here" in error["message"]
        assert error["code"] == "endpoint_refused"


def test_a_spent_budget_leaves_the_little_model(tmp_path: Path) -> None:
    with piping(elsewhere(budget_calls=1), endpoint=Endpoint(good())) as api:
        assert said(api, UNSURE)[0] == "far"
        assert series(api, "pipeline_budget_calls_left") == [0]
        text, told = said(api, UNSURE)
        assert (text, told["answered_by"]) == ("one", "little")
        assert "budget" in told["reason"]


def test_a_spent_budget_never_breaks_a_promise(tmp_path: Path) -> None:
    certified(tmp_path)
    content = elsewhere({"risk": 0.1, "calibration": "cascade.json"}, budget_calls=0)
    with piping(content, folder=tmp_path, endpoint=Endpoint(good())) as api:
        assert said(api, SURE)[0] == "one"
        response = api.post(COMPLETIONS, {**GREEDY, "prompt": UNSURE})
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx2.ConnectError("refused"), "can't be reached: refused"),
        (httpx2.Response(401), "refuses the key"),
        (httpx2.Response(404), "/v1/models answers 404"),
        (httpx2.Response(200, json={"data": [{"id": "other"}]}), "has no model 'huge'"),
    ],
)
def test_an_endpoint_is_looked_at_before_anything_is_served(answer: httpx2.Response | Exception, message: str) -> None:
    with (
        piping(elsewhere(), endpoint=Endpoint(answer)) as api,
        pytest.raises(ResourceError, match=f"pipeline 'smart': .*{message}"),
    ):
        api.pipelines.check()


@pytest.mark.parametrize("body", [{"data": [{"id": "huge"}]}, {"models": []}])
def test_an_endpoint_that_has_the_model_or_lists_none_is_fine(body: dict[str, Any]) -> None:
    with piping(elsewhere(), endpoint=Endpoint(httpx2.Response(200, json=body))) as api:
        api.pipelines.check()


def test_an_address_where_nobody_listens_is_refused_at_the_start() -> None:
    with piping(elsewhere(url="http://127.0.0.1:1/v1")) as api, pytest.raises(ResourceError, match="can't be reached"):
        api.pipelines.check()
