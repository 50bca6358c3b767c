"""Every refusal has OpenAI's shape, the right status, and the name of the field."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from offramp.engine.engine import Engine
from offramp.errors import (
    ContextLengthError,
    EngineFailedError,
    InvalidRequestError,
    ModelError,
    NumericError,
    OfframpError,
    QueueFullError,
    ResourceError,
    ServerStoppingError,
)
from offramp.serve.errors import failure_of
from offramp.serve.request_log import REQUESTS, JsonLines
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, error_of, messages, served

VOCAB = chat_tokenizer().vocab_size
HEALTHY = {"prompt": "hello", "max_tokens": 2}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(mixing(VOCAB, first=3), num_pages=16), served_names=("toy", "org/toy")) as api:
        yield api


@pytest.fixture(autouse=True)
def _the_next_request_is_served(api: Api) -> Iterator[None]:
    """Whatever a test sent, the server goes on."""
    yield
    assert api.answer(COMPLETIONS, **HEALTHY)["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (InvalidRequestError("a", hint="b", param="c"), 400, "invalid_request_error", None),
        (ContextLengthError("a", hint="b"), 400, "invalid_request_error", "context_length_exceeded"),
        (ResourceError("a", hint="b"), 400, "invalid_request_error", "insufficient_resources"),
        (ModelError("a", hint="b"), 400, "invalid_request_error", "chat_template_failed"),
        (QueueFullError("a", hint="b"), 429, "rate_limit_error", "queue_full"),
        (ServerStoppingError("a", hint="b"), 503, "server_error", "server_stopping"),
        (EngineFailedError("a", hint="b"), 500, "server_error", "engine_failed"),
        (NumericError("a", hint="b"), 500, "server_error", "numeric_error"),
        (OfframpError("a", hint="b"), 500, "server_error", None),
    ],
)
def test_kinds_have_statuses(error: OfframpError, status: int, kind: str, code: str | None) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.error["type"], failure.error["code"]) == (status, kind, code)
    assert failure.error["message"] == "a: b"
    assert failure.error["param"] == getattr(error, "param", None)


def test_a_full_queue_says_when_to_come_again() -> None:
    failure = failure_of(QueueFullError("a", hint="b", retry_after_seconds=1.2))
    assert failure.headers["retry-after"] == "2"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"prompt": "\xff"}', b'{"a": NaN}'])
def test_malformed_bodies(api: Api, path: str, body: bytes) -> None:  # B97
    assert error_of(api.post_bytes(path, body))["type"] == "invalid_request_error"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_content_types(api: Api, content_type: str | None) -> None:  # B97
    assert "Content-Type" in error_of(api.post_bytes(COMPLETIONS, b'{"prompt": "a"}', content_type))["message"]


def test_compressed_bodies_are_refused(api: Api) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert "gzip" in error_of(api.ask("POST", COMPLETIONS, content=b"{}", headers=headers))["message"]


def test_a_charset_is_no_other_content_type(api: Api) -> None:
    body = b'{"prompt": "a", "max_tokens": 1}'
    assert api.post_bytes(COMPLETIONS, body, "Application/JSON; charset=utf-8").status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "NaN"),
        ("temperature", "Infinity"),
        ("temperature", "1e999"),
        ("temperature", "-1"),
        ("temperature", "1" + "0" * 400),
        ("temperature", '"0.5"'),
        ("temperature", "true"),
        ("temperature", "[1]"),
        ("top_p", "NaN"),
        ("top_p", "0"),
        ("top_p", "1.01"),
        ("min_p", "-0.1"),
        ("top_k", "0.01"),
        ("top_k", "1.0"),
        ("top_k", "-5"),
        ("n", "0"),
        ("n", "129"),
        ("n", '"2"'),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("max_tokens", "1.5"),
        ("min_tokens", "17"),
        ("seed", "1.5"),
        ("seed", "18446744073709551616"),
        ("stop", '""'),
        ("stop", '[""]'),
        ("stop", '["", "END"]'),
        ("stop", "5"),
        ("stop", "[5]"),
        ("stop", "{}"),
        ("stop", "[" + ", ".join(['"x"'] * 65) + "]"),
        ("stop", '"' + "x" * 5000 + '"'),
        ("stop_token_ids", "5"),
        ("stop_token_ids", "[-1]"),
        ("stop_token_ids", "[1.5]"),
        ("stop_token_ids", "[99999]"),
        ("stop_token_ids", "[" + "9" * 400 + "]"),
        ("ignore_eos", "1"),
        ("presence_penalty", "3"),
        ("frequency_penalty", "-2.1"),
        ("repetition_penalty", "0"),
        ("logit_bias", "[]"),
        ("logit_bias", '{"x": 1}'),
        ("logit_bias", '{"1.5": 1}'),
        ("logit_bias", '{"-1": 1}'),
        ("logit_bias", '{"5": 101}'),
        ("logit_bias", '{"5": "1"}'),
        ("logit_bias", '{"99999": 1}'),
        ("logit_bias", '{"5": 1, "05": 1}'),
        ("logprobs", "129"),
        ("logprobs", "-1"),
        ("logprobs", "true"),
        ("best_of", "2"),
        ("best_of", "0"),
        ("best_of", '"1"'),
        ("prompt_logprobs", "129"),
        ("stream", '"yes"'),
        ("stream", "1"),
        ("stream_options", '{"include_usage": true}'),
        ("model", "5"),
        ("cache_salt", "5"),
        ("echo", "1"),
    ],
)
def test_impossible_values_name_their_field(api: Api, field: str, value: str) -> None:  # B29, B94, B95
    body = f'{{"prompt": "a", "{field}": {value}}}'.encode()
    param = error_of(api.post_bytes(COMPLETIONS, body))["param"]
    assert str(param).partition(".")[0] == field


@pytest.mark.parametrize("top_k", [-1, 0, 9_999_999])
def test_top_k_that_is_off(api: Api, top_k: int) -> None:  # B95
    assert api.answer(COMPLETIONS, **HEALTHY, top_k=top_k)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("messages", [], "messages"),
        ("messages", {}, "messages"),
        ("messages", ["hi"], "messages[0]"),
        ("messages", [{"role": "user"}], "messages[0].content"),
        ("messages", [{"content": "a"}], "messages[0].role"),
        ("messages", [{"role": "robot", "content": "a"}], "messages[0].role"),
        ("messages", [{"role": ["user"], "content": "a"}], "messages[0].role"),
        ("messages", [{"role": "function", "content": "a"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
        ("messages", [{"role": "user", "content": []}], "messages[0].content"),
        ("messages", [{"role": "user", "content": ["a"]}], "messages[0].content[0]"),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ("messages", [{"role": "user", "content": "a", "name": 5}], "messages[0].name"),
        ("messages", [{"role": "assistant", "content": "a", "function_call": {}}], "messages[0].function_call"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("top_logprobs", 2, "top_logprobs"),
        ("logprobs", 2, "logprobs"),
        ("response_format", {"type": "json_schema", "json_schema": {}}, "response_format.json_schema.schema"),
        ("response_format", {}, "response_format.type"),
        ("prediction", {"type": "content"}, "prediction.content"),
        ("prediction", {"type": "text", "content": "a"}, "prediction.type"),
        ("chat_template", "{{ messages }}", "chat_template"),
        ("chat_template_kwargs", {"enable_thinking": False}, "chat_template_kwargs"),
        ("chat_template_kwargs", {"opening": "a", "messages": []}, "chat_template_kwargs"),
        ("chat_template_kwargs", {"add_generation_prompt": False}, "chat_template_kwargs"),
        ("chat_template_kwargs", {"eos_token": ""}, "chat_template_kwargs"),
        ("chat_template_kwargs", [], "chat_template_kwargs"),
        ("chat_template_kwargs", "opening", "chat_template_kwargs"),
    ],
)
def test_impossible_chats_name_their_field(api: Api, field: str, value: object, param: str) -> None:
    assert api.refusal(CHAT, {"messages": messages(), field: value})["param"] == param


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"mode": "calibrated"}, "mode"),
        ({"mode": "unchecked"}, "mode"),
        ({"mode": "quick"}, "mode"),
        ({"risk": 0.1}, "risk"),
        ({"exits": "pack"}, "exits"),
        ({"draft": "telepathy"}, "draft"),
        ({"mode": "full", "draft": "ngram"}, "draft"),
        ({"max_draft": -1}, "max_draft"),
        ({"max_draft": 65}, "max_draft"),
        ({"references": "a"}, "references"),
        ({"references": [5]}, "references"),
        ({"references": ["a"] * 65}, "references"),
        ({"references": ["a"], "draft": "off"}, "references"),
        ({"references": ["a"], "mode": "full"}, "references"),
        ({"references": ["a"], "draft": "auto", "max_draft": 0}, "draft"),
        ({"references": ["a"], "max_draft": 0}, "references"),
        ({"references": ["a"]}, "references"),  # the server drafts nothing unless asked to
        ({"draft": "reference"}, "draft"),
        ({"report": "everything"}, "report"),
        ({"depth": 3}, "depth"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_execution_that_can_not_be_had_is_refused_by_name(api: Api, path: str, options: object, param: str) -> None:
    body = {"offramp": options, **({"messages": messages()} if path == CHAT else {"prompt": "a"})}
    assert api.refusal(path, body)["param"] == f"offramp.{param}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "offramp": {"max_draft": 65}}, "offramp.max_draft"),
        ({"prompt": "a", "my secret": 1}, "unknown_field"),
        ({"prompt": "a", "offramp": {"secret": 1}}, "offramp"),
        ({"prompt": "a", "model": "secret"}, "model_not_found"),
        ({"prompt": ["a", 5]}, "prompt"),
        ([], "invalid_request"),
        ({"prompt": "ab" * 4000}, "context_length_exceeded"),
    ],
)
def test_the_log_tells_why_and_nothing_that_a_client_wrote(
    api: Api, caplog: pytest.LogCaptureFixture, body: object, reason: str
) -> None:
    with caplog.at_level(logging.INFO, logger=REQUESTS.name):
        api.refusal(COMPLETIONS, body, 404 if reason == "model_not_found" else 400)
    [record] = [record for record in caplog.records if hasattr(record, "request")]
    assert record.request.reason == reason
    assert "secret" not in JsonLines().format(record)


def test_a_prediction_excludes_other_references(api: Api) -> None:
    body = {"messages": messages(), "prediction": {"type": "content", "content": "a"}}
    for options in ({"references": ["b"]}, {"draft": "off"}):
        assert api.refusal(CHAT, {**body, "offramp": options})["param"] == "prediction"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": messages()}),
        (COMPLETIONS, {"prompt": "a"}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [5]}),
    ],
)
@pytest.mark.parametrize("model", ["gpt-4", "", "../toy"])
def test_unknown_models(api: Api, path: str, body: dict[str, object], model: str) -> None:
    error = api.refusal(path, {**body, "model": model}, 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "toy, org/toy" in error["message"]


def test_models_are_listed_and_found_by_every_name(api: Api) -> None:
    listed = api.get("/v1/models").json()
    assert [card["id"] for card in listed["data"]] == ["toy", "org/toy"]
    assert api.get("/v1/models/org/toy").json() == listed["data"][1]
    assert api.answer(COMPLETIONS, **HEALTHY, model="org/toy")["model"] == "org/toy"
    assert api.answer(COMPLETIONS, **HEALTHY)["model"] == "toy"
    assert error_of(api.get("/v1/models/other"), 404)["code"] == "model_not_found"


@pytest.mark.parametrize(
    "path", ["/page", "/v1", "/v2/models", "/v1/chat", "/docs", "/v1/models/../../etc/passwd", "/health/"]
)
def test_unknown_routes(api: Api, path: str) -> None:
    assert error_of(api.get(path), 404)["code"] in ("not_found", "model_not_found")


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("DELETE", "/v1/models"), ("PUT", COMPLETIONS)])
def test_wrong_methods(api: Api, method: str, path: str) -> None:
    response = api.ask(method, path)
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == ("GET, HEAD" if method == "DELETE" else "POST")


def test_what_is_told_of_the_server(api: Api) -> None:
    assert api.get("/health").json() == {"status": "ok"}
    assert set(api.get("/version").json()) == {"version"}
    response = api.get("/metrics")
    assert "offramp:num_requests_running" in response.text
    assert response.headers["content-type"].startswith("text/plain")
    assert len(api.get("/version").headers["x-request-id"]) == 32


def test_a_failing_model_ends_one_request_only(api: Api) -> None:
    script = mixing(VOCAB, first=3)

    def broken(history: tuple[int, ...], depth: int) -> np.ndarray:
        return np.full(VOCAB, np.nan, np.float32) if history.count(50) > 1 else script(history, depth)

    with served(scripted_model(broken, num_pages=16)) as other:
        error = other.refusal(COMPLETIONS, {"prompt": [50, 50]}, 500)
        assert error["code"] == "numeric_error"
        assert other.answer(COMPLETIONS, **HEALTHY)


def test_a_failed_engine_is_told_and_shown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Engine) -> None:
        raise RuntimeError("a secret prompt")

    with served(scripted_model(mixing(VOCAB, first=3), num_pages=16)) as other:
        monkeypatch.setattr(Engine, "step", step)
        for _ in range(2):
            assert other.refusal(COMPLETIONS, HEALTHY, 500)["code"] == "engine_failed"
        monkeypatch.undo()
        response = other.get("/health")
        assert (response.status_code, response.json()) == (503, {"status": "failed"})


def test_a_bug_is_told_without_its_text(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(tokenizer: object, text: str) -> None:
        raise KeyError(text)

    monkeypatch.setattr(type(chat_tokenizer()), "encode", encode)
    response = api.post(COMPLETIONS, {"prompt": "a secret"})
    monkeypatch.undo()
    assert error_of(response, 500)["code"] == "internal_error"
    assert "secret" not in response.text + caplog.text
    assert "KeyError" in caplog.text
    assert "prompts.py" in caplog.text
