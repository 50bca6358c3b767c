"""The OpenAPI document is true, and nothing that fits it, or does not, is answered with a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import Api, listening, served

VOCAB = chat_tokenizer().vocab_size


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with served(scripted_model(mixing(VOCAB, first=3), num_pages=16, max_context=64), request_seconds=10) as api:
        yield api


def test_the_document_describes_bodies_and_errors(api: Api) -> None:
    document = api.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ChatBody"}
    assert {"200", "400", "401", "408", "413", "429", "503"} <= set(chat["responses"])
    assert set(schemas["ChatBody"]["required"]) == {"messages"}
    assert set(schemas["OfframpBody"]["properties"]) >= {"mode", "draft", "report"}
    assert schemas["ChatBody"]["properties"]["offramp"] == {"$ref": "#/components/schemas/OfframpBody"}
    references = [text for text in str(document).split("'") if text.startswith("#/components/schemas/")]
    assert {reference.rpartition("/")[2] for reference in references} <= set(schemas)


@pytest.mark.parametrize(
    "num_examples", [pytest.param(2, id="few"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
def test_generated_requests_find_no_5xx(api: Api, num_examples: int) -> None:
    with listening(api.app) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=num_examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @_given(operation)
            def send(case: Any) -> None:
                case.call_and_validate(checks=[not_a_server_error], timeout=30)

            send()
    assert api.get("/health").json() == {"status": "ok"}


def _given(operation: Any) -> Any:
    from hypothesis import given

    return given(case=operation.as_strategy())
