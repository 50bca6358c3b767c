"""What a page of another site can do to a server: nothing that it could read, and nothing that generates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import CHAT, COMPLETIONS, Api, error_of, served

ELSEWHERE = {"origin": "null"}
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=16)) as api:
        yield api


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/responses", "/tokenize", "/v1/models", "/"])
def test_it_may_not_ask_with_json(api: Api, path: str) -> None:
    response = api.ask("OPTIONS", path, headers={**ELSEWHERE, **ASKING})
    error_of(response, 405)
    assert [name for name in response.headers if name.startswith("access-control-")] == []


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/health", "/openapi.json", "/"])
def test_it_may_not_read(api: Api, path: str) -> None:
    response = api.get(path, headers=ELSEWHERE)
    assert response.status_code == 200
    assert [name for name in response.headers if name.startswith("access-control-")] == []


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_what_it_may_send_unasked_is_refused(api: Api, content_type: str | None) -> None:
    error_of(api.post_bytes(COMPLETIONS, b'{"prompt": "a", "max_tokens": 1}', content_type))
