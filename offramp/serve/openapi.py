"""The OpenAPI document: FastAPI's, with the bodies that we read ourselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from offramp.serve.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    OfframpBody,
    ResponseBody,
    StreamOptionsBody,
    StructuredOutputsBody,
    TokenizeBody,
)

BODIES: Mapping[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponseBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
NESTED: Mapping[str, type[BaseModel]] = {
    "offramp": OfframpBody,
    "stream_options": StreamOptionsBody,
    "structured_outputs": StructuredOutputsBody,
}
"""Fields whose objects are read on their own."""

REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    "400": "A field can't be honoured",
    "401": "The API key is missing or wrong",
    "403": "The Host header names a host that is not served",
    "404": "No such model",
    "408": "The time is up",
    "413": "The body is too large",
    "429": "Too many requests wait",
    "500": "The engine failed",
    "503": "The server is stopping, the model can't be loaded now, or a pipeline's endpoint failed",
}
ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def describe(app: FastAPI) -> None:
    """Give the application its document, made when it is first asked for."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, definitions = models_json_schema(
        [(model, "validation") for model in (*BODIES.values(), *NESTED.values())], ref_template=REFERENCE
    )
    schemas = {**definitions["$defs"], "Error": ERROR_SCHEMA}
    for schema in schemas.values():
        for name, model in NESTED.items():
            if name in schema.get("properties", {}):
                schema["properties"][name] = _ref(model.__name__)
    document.setdefault("components", {})["schemas"] = schemas
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"] |= {status: _error(text) for status, text in ERRORS.items()}
            if path in BODIES:
                body = {"application/json": {"schema": _ref(BODIES[path].__name__)}}
                operation["requestBody"] = {"required": True, "content": body}
    return document


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=name)}


def _error(text: str) -> dict[str, object]:
    return {"description": text, "content": {"application/json": {"schema": _ref("Error")}}}
