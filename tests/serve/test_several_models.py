"""Several models behind one address: the request's `model` chooses, and each keeps its own state, counts and faults."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.core import Rows
from offramp.errors import CorruptModelError
from offramp.llm.loading import LoadedModel
from offramp.model.hidden import ArrayHidden
from offramp.serve.listen import bind, serve, url_of
from offramp.serve.request_log import REQUESTS
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import chat_tokenizer, loaded_model, says, scripted_model
from offramp.testing.scripted import ScriptedModel
from tests.serve.asking import CHAT, COMPLETIONS, error_of, messages
from tests.serve.hosting import WELL, HostApi, Scripted, hosting_api

RESPONSES = "/v1/responses"
GREEDY: dict[str, object] = {"prompt": "hello", "temperature": 0}


def saying(answer: str, *names: str, **options: Any) -> Scripted:
    """A model that says one thing."""
    prompts = ("hello", "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    return Scripted(*names, make=lambda: scripted_model(says(*((prompt, answer) for prompt in prompts))), **options)


@pytest.fixture
def api() -> Iterator[HostApi]:
    """Two models, of which memory holds one."""
    with hosting_api(saying("one", "small", "tiny"), saying("two", "big"), memory=15) as api:
        yield api


def text(api: HostApi, **body: object) -> str:
    return str(api.answer(COMPLETIONS, **GREEDY, **body)["choices"][0]["text"])


def status(api: HostApi) -> dict[str, str]:
    """Each name's state, as /v1/models has it."""
    return {card["id"]: card["status"]["value"] for card in api.get("/v1/models").json()["data"]}


def series(api: HostApi, name: str) -> dict[str, float]:
    """Values of a metric by its model."""
    found: dict[str, float] = {}
    families = list(text_string_to_metric_families(api.get("/metrics").text))
    assert len({family.name for family in families}) == len(families), "a family is named twice"
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == f"offramp:{name}":
            model = sample.labels["model_name"]
            found[model] = found.get(model, 0) + sample.value
    return found


def test_the_model_of_a_request_answers_it(api: HostApi) -> None:
    assert text(api, model="big") == "two"
    assert text(api, model="small") == "one"
    assert text(api, model="tiny") == "one"
    assert text(api) == "one"


def test_every_route_chooses(api: HostApi) -> None:
    for model, says_so in (("big", "two"), ("tiny", "one")):
        chat = api.answer(CHAT, model=model, messages=messages(), temperature=0)
        assert (chat["model"], chat["choices"][0]["message"]["content"]) == (model, says_so)
        chunks = api.stream(CHAT, model=model, messages=messages(), temperature=0)
        assert {chunk["model"] for chunk in chunks} == {model}
        response = api.answer(RESPONSES, model=model, input="hello", temperature=0)
        assert (response["model"], response["output"][0]["content"][0]["text"]) == (model, says_so)
        assert api.answer("/tokenize", model=model, prompt="hello")["count"] > 0
        assert api.answer("/detokenize", model=model, tokens=[5])["prompt"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, "/tokenize", "/detokenize"])
def test_another_name_is_no_model_and_loads_none(api: HostApi, path: str) -> None:
    error = api.refusal(path, {"model": "huge", "prompt": "x"}, 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "small, tiny, big" in error["message"]
    assert set(status(api).values()) == {"unloaded"}


def test_a_name_of_another_type_is_refused(api: HostApi) -> None:
    assert api.refusal(COMPLETIONS, {"model": 5, "prompt": "x"})["param"] == "model"


def test_models_are_listed_with_their_state(api: HostApi) -> None:
    assert status(api) == {"small": "unloaded", "tiny": "unloaded", "big": "unloaded"}
    text(api, model="tiny")
    assert status(api) == {"small": "loaded", "tiny": "loaded", "big": "unloaded"}
    card = api.get("/v1/models/tiny").json()
    assert (card["root"], card["status"]) == ("small", {"value": "loaded", "memory_bytes": 10})
    length = card["max_model_len"]
    text(api, model="big")
    assert status(api) == {"small": "unloaded", "tiny": "unloaded", "big": "loaded"}
    assert api.get("/v1/models/small").json()["max_model_len"] == length > 0
    assert api.get("/v1/models/huge").status_code == 404


def test_metrics_tell_models_apart(api: HostApi) -> None:
    assert series(api, "generation_tokens_total") == {"small": 0, "big": 0}
    api.answer(COMPLETIONS, **GREEDY, model="tiny", max_tokens=2)
    api.answer(COMPLETIONS, **GREEDY, model="big", max_tokens=1)
    api.refusal(COMPLETIONS, {"model": "huge", "prompt": "x"}, 404)
    assert series(api, "generation_tokens_total") == {"small": 2, "big": 1}
    assert series(api, "time_to_first_token_seconds_count") == {"small": 1, "big": 1}
    assert series(api, "model_loaded") == {"small": 0, "big": 1}
    assert series(api, "model_memory_bytes") == {"small": 0, "big": 10}
    assert series(api, "model_loads_total") == {"small": 1, "big": 1}
    counted = series(api, "http_requests_total")
    assert (counted["small"], counted["big"]) == (1, 1)
    assert counted[""] >= 1


def test_the_log_names_the_model(api: HostApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, REQUESTS.name):
        text(api, model="tiny")
        api.refusal(COMPLETIONS, {"model": "huge", "prompt": "x"}, 404)
    requests = [record.request for record in caplog.records if hasattr(record, "request")]
    assert [(request.model, request.status) for request in requests] == [("small", 200), (None, 404)]


def test_a_model_that_cannot_be_loaded_leaves_the_others() -> None:
    broken = saying("three", "broken")
    broken.error = CorruptModelError("/srv/broken.gguf is cut short", hint="none")
    with hosting_api(broken, saying("one", "small")) as api:
        refused = api.post(COMPLETIONS, {**GREEDY, "model": "broken"})
        error = error_of(refused, 503)
        assert (error["type"], error["code"]) == ("server_error", "model_load_failed")
        assert "the model broken can't be loaded: its files are damaged" in error["message"]
        assert "/srv" not in error["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert text(api, model="small") == "one"
        assert status(api) == {"broken": "failed", "small": "loaded"}
        assert series(api, "model_load_failures_total") == {"broken": 1, "small": 0}
        assert api.get("/health").status_code == 200


class _Breaking(ScriptedModel):
    def embed(self, rows: Rows) -> ArrayHidden:
        raise ZeroDivisionError("broken on purpose")


def breaking() -> LoadedModel:
    return loaded_model(_Breaking(WELL, num_pages=16, vocab_size=chat_tokenizer().vocab_size))


def test_an_engine_that_breaks_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with hosting_api(Scripted("fragile", make=breaking), saying("one", "small")) as api:
        assert api.refusal(COMPLETIONS, {**GREEDY, "model": "fragile"}, 500)["code"] == "engine_failed"
        assert text(api, model="small") == "one"
        assert api.get("/health").status_code == 503
        assert api.refusal(COMPLETIONS, {**GREEDY, "model": "fragile"}, 500)["code"] == "engine_failed"
    assert "broken on purpose" in caplog.text


def test_two_models_answer_at_the_same_time() -> None:
    """Each as when it is alone."""
    body = {**GREEDY, "max_tokens": 40, "ignore_eos": True}
    names = ["a", "b"] * 4
    with hosting_api(*(Scripted(name, make=lambda: scripted_model(WELL, num_pages=64)) for name in "ab")) as api:
        alone = {name: api.answer(COMPLETIONS, **body, model=name)["choices"] for name in "ab"}

        async def together() -> list[httpx2.Response]:
            transport = httpx2.ASGITransport(app=api.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await asyncio.gather(*(client.post(COMPLETIONS, json={**body, "model": n}) for n in names))

        answers = [response.json()["choices"] for response in asyncio.run(together())]
        assert answers == [alone[name] for name in names]


def test_a_signal_lets_the_answers_of_all_models_end() -> None:
    gates = {"a": Gate(), "b": Gate()}
    models = [Scripted(name, make=lambda name=name: gated_model(WELL, gates[name])) for name in gates]  # type: ignore[misc]
    ends: dict[str, str] = {}
    with hosting_api(*models) as api, bind("127.0.0.1", 0) as listener:
        url = url_of(listener)

        def stream(name: str) -> None:
            body = {**GREEDY, "model": name, "max_tokens": 8, "ignore_eos": True, "stream": True}
            with (
                httpx2.Client(base_url=url, timeout=30) as client,
                client.stream("POST", COMPLETIONS, json=body) as response,
            ):
                lines = [line for line in response.iter_lines() if line]
            assert lines[-1] == "data: [DONE]"
            ends[name] = json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"]

        def act() -> None:
            try:
                for gate in gates.values():
                    gate.close()
                streams = [threading.Thread(target=stream, args=(name,)) for name in gates]
                for thread in streams:
                    thread.start()
                for gate in gates.values():
                    gate.wait_until_reached()
            finally:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                for gate in gates.values():
                    gate.open()
            for thread in streams:
                thread.join(30)

        running: list[int] = []
        acting = threading.Thread(target=act)
        serve(api.app, api.models, listener, drain_seconds=30, ready=acting.start, stopping=running.append)
        acting.join(30)
    assert ends == {"a": "length", "b": "length"}
    assert running[0] in (0, 1, 2)  # they may have ended by then
