"""Two models behind one name: the right one answers, as it would alone, and the answer says who it was."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from offramp.collaborate.cascade.calibration import BothRunning
from offramp.collaborate.cascade.scorer import Scorer
from offramp.collaborate.pipeline.drift import ShareWatch
from offramp.collaborate.router.pack_file import write_router
from offramp.core import Request
from offramp.errors import InvalidRequestError, ModelNotFoundError
from offramp.llm.loading import LoadedModel
from offramp.llm.running_of import running_of
from offramp.serve.settings import ServerSettings
from offramp.serve.ticket import Ticket
from offramp.serve.worker import Worker
from offramp.testing.models import chat_tokenizer
from tests.llm.exiting import ALWAYS, serving, toy_pack, with_pack
from tests.serve.asking import CHAT, COMPLETIONS, listening, messages
from tests.serve.piping import (
    GREEDY,
    HASH,
    SURE,
    UNSURE,
    UNSURE_NEED,
    Endpoint,
    PipeApi,
    big_model,
    cascade,
    certified,
    elsewhere,
    good,
    length_router,
    little_model,
    piping,
    route,
    said,
    series,
)
from tests.serve.tooling import STRICT, tool_model

RESPONSES = "/v1/responses"


@pytest.fixture
def api() -> Iterator[PipeApi]:
    with piping(cascade(threshold=0.5)) as api:
        yield api


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


def test_all_models_share_the_time_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    submit = Worker.submit

    async def watched(worker: Worker, request: Request, **options: Any) -> Ticket:
        left.append(options["total_seconds"])
        return await submit(worker, request, **options)

    monkeypatch.setattr(Worker, "submit", watched)
    with piping(cascade(threshold=0.3, score="agreement")) as api:
        assert said(api, UNSURE)[0] == "two"
        assert len(left) == 3, "an answer, samples, and the big model's answer"
        assert ServerSettings().request_seconds > left[0] > left[1] > left[2] > 0


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


def test_a_certified_threshold_holds_for_what_it_was_measured_on(tmp_path: Path) -> None:
    certified(tmp_path)
    with piping(cascade(risk=0.15, calibration="cascade.json"), folder=tmp_path) as api:
        text, told = said(api, SURE)
        assert (text, told["risk"], told["threshold"], told["reason"]) == ("one", 0.1, 0.5, None)
        changes: dict[str, object] = {
            "temperature": 0.5,
            "max_tokens": 17,
            "structured_outputs": {"choice": ["one"]},
            "stop": ["x"],
            "stop_token_ids": [5],
        }
        for name, value in changes.items():
            text, told = said(api, SURE, **{name: value})
            assert told["answered_by"] == "big"
            assert name in told["reason"]


def test_a_trained_score_comes_with_its_calibration(tmp_path: Path) -> None:
    """One that counts tokens' chances against the answer: the sure one stays below any threshold."""
    scorer = Scorer(weights=(-4.0, 0.0, 0.0), bias=-2.0)
    certified(tmp_path, score="trained", scorer=scorer)
    with piping(cascade(risk=0.15, calibration="cascade.json"), folder=tmp_path) as api:
        text, told = said(api, SURE)
        assert (text, told["score"]) == ("one", pytest.approx(1 / (1 + np.exp(2)), abs=1e-3))
        text, told = said(api, UNSURE)
        assert (text, told["answered_by"]) == ("two", "big")
        assert told["score"] == pytest.approx(1 / (1 + np.exp(2 + 4 * np.log(1 - UNSURE_NEED))), abs=1e-3)


@pytest.mark.parametrize("known", [None, "cd" * 32])
def test_a_certificate_is_for_the_big_model_it_was_measured_with(known: str | None, tmp_path: Path) -> None:
    certified(tmp_path, big_model=known)
    with piping(cascade(risk=0.1, calibration="cascade.json"), folder=tmp_path) as api:
        assert said(api, SURE)[0] == "one"
        if known is None:
            assert said(api, UNSURE)[0] == "two"
            return
        assert "belongs to a big model" in api.refusal(COMPLETIONS, {**GREEDY, "prompt": UNSURE})["message"]
        with pytest.raises(InvalidRequestError, match=r"pipeline 'smart': .*belongs to a big model"):
            api.pipelines.check()


@pytest.mark.parametrize(
    ("field", "message"),
    [("kv", "kv of the little model is 'f32'"), ("big_weights", "weights of the big model is 'f32'"), (None, None)],
)
def test_a_certificate_is_for_models_as_they_ran(field: str | None, message: str | None, tmp_path: Path) -> None:
    little, big = running_of(little_model()), running_of(big_model())
    running = BothRunning(**little, **{f"big_{name}": value for name, value in big.items()})
    certified(tmp_path, running=running if field is None else replace(running, **{field: "q8"}))
    with piping(cascade(big_share=0.5, calibration="cascade.json"), folder=tmp_path) as api:
        api.models.load_at_start()
        assert [said(api, prompt)[0] for prompt in (SURE, UNSURE)] == ["one", "two"], "a share is no promise"
    with piping(cascade(risk=0.1, calibration="cascade.json"), folder=tmp_path) as api:
        bodies = [{**GREEDY, "prompt": prompt} for prompt in (SURE, UNSURE)]
        answers = [api.post(COMPLETIONS, body) for body in bodies]
        if message is None:
            assert [each.status_code for each in answers] == [200, 200]
            api.pipelines.check()
            return
        assert message in answers[-1].json()["error"]["message"]
        with pytest.raises(InvalidRequestError, match=f"pipeline 'smart': .*{message}, .*measured with 'q8'"):
            api.pipelines.check()


def test_a_certified_answer_calls_no_tools_by_a_grammar(tmp_path: Path) -> None:
    certified(tmp_path)
    content = elsewhere({"risk": 0.1, "calibration": "cascade.json"})
    little = lambda: replace(tool_model(), source_hash=HASH)  # noqa: E731
    with piping(content, folder=tmp_path, endpoint=Endpoint(good()), little=little) as api:
        answer = api.answer(CHAT, **GREEDY, messages=messages(SURE), tools=STRICT)
        assert "calls of tools" in answer["offramp"]["pipeline"]["reason"]


def test_a_certified_answer_is_one_of_all_layers(tmp_path: Path, toy_path: Path, own_cache: Path) -> None:
    pack = toy_pack(tmp_path / "mine", toy_path)
    loaded = with_pack(toy_path, pack)
    certified(tmp_path, model=loaded.source_hash)
    content = elsewhere({"risk": 0.1, "calibration": "cascade.json"})
    early = serving(pack, threshold={1: ALWAYS})
    with piping(content, folder=tmp_path, endpoint=Endpoint(good()), little=lambda: loaded, serving=early) as api:
        assert said(api, SURE)[1]["reason"] is None
        told = said(api, SURE, offramp={"mode": "unchecked"})[1]
        assert (told["answered_by"], told["reason"]) == ("big", "mode unchecked was not part of the calibration")


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


@pytest.fixture
def routed(tmp_path: Path) -> Path:
    """Prompts of more than three tokens are for the big model."""
    write_router(tmp_path / "router", length_router(at=3))
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


def test_a_client_that_goes_waits_for_no_pages(routed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def none(*args: object) -> None:
        looked.set()

    monkeypatch.setattr("offramp.serve.piped._embedded", none)
    with piping(route(threshold=0.5), folder=routed) as api, listening(api.app) as url:
        body = json.dumps({**GREEDY, "prompt": SURE}).encode()
        where = httpx2.URL(url)
        with socket.create_connection((where.host, where.port)) as client:
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert looked.wait(30)
        until = time.monotonic() + 30
        while api.models.find("small").num_holds and time.monotonic() < until:
            time.sleep(0.05)
        assert api.models.find("small").num_holds == 0


def test_drift_is_told_once(routed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with piping(route(big_share=0.25), folder=routed) as api, caplog.at_level(logging.WARNING):
        api.pipeline("smart").watch = ShareWatch(0.25, 400)
        for _ in range(120):
            api.pipeline("smart").decided(True)
        assert series(api, "pipeline_drifted") == [1.0]
        assert len([record for record in caplog.records if "calibrate it again" in record.getMessage()]) == 1


@pytest.mark.parametrize("policy", ["cascade", "route"])
def test_the_little_model_is_not_held_while_the_big_one_answers(policy: str, routed: Path) -> None:
    """Where memory holds one of the two, the little one's must be free by then."""
    content = route(threshold=0.0) if policy == "route" else cascade(threshold=0.0)
    found: list[object] = []

    def big() -> LoadedModel:
        leaving = ours.models.find("small").take()
        leaving.worker.stop()
        ours.models.find("small").forget(leaving.worker)
        held = weakref.ref(leaving.served.loaded.executor)
        del leaving
        gc.collect()
        found.append(held())
        return big_model()

    with piping(content, folder=routed, big=big) as ours:
        assert said(ours, SURE)[0] == "two"
        assert found == [None]


def test_requests_that_no_certificate_covers_are_no_drift(tmp_path: Path) -> None:
    certified(tmp_path)
    with piping(cascade(risk=0.1, calibration="cascade.json"), folder=tmp_path) as api:
        assert said(api, SURE, max_tokens=17)[1]["answered_by"] == "big"
        assert series(api, "pipeline_big_share") == []
        assert said(api, SURE)[1]["answered_by"] == "little"
        assert series(api, "pipeline_big_share") == [0]
