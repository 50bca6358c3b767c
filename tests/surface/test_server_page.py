"""docs/server.md names every route, every error code, and every option that one of several models may have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from offramp.llm.model_flags import ModelFlags
from offramp.serve.errors import KINDS
from offramp.serve.fields import DETOKENIZE, TOKENIZE
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import served


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "server.md").read_text(encoding="utf-8")


def test_every_option_of_a_model_is_named(page: str) -> None:
    section = page.split("\n## Several models\n")[1].split("\n## ")[0]
    names = {field.name for field in fields(ModelFlags) if not field.name.startswith("exit_")}
    assert {name for name in names if f"`{name}`" not in section} == set()


def test_every_error_code_is_named(page: str, root: Path) -> None:
    written = [path.read_text(encoding="utf-8") for path in (root / "offramp" / "serve").glob("*.py")]
    codes = {code for text in written for code in re.findall(r'code="(\w+)"', text)}
    codes |= {code for *_, code in KINDS if code} | {"model_busy", "model_load_failed", "internal_error"}
    section = page.split("\n## Errors\n")[1].split("\n## ")[0]
    assert len(codes) > 15
    assert {code for code in codes if f"`{code}`" not in section} == set()


def test_every_route_is_named(page: str) -> None:
    with served(scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=16)) as api:
        paths = api.app.openapi()["paths"]
    routes = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    assert len(routes) > 8
    assert [route for route in routes if f"`{route.replace('{model}', '{name}')}`" not in page] == []


def test_every_field_about_token_ids_is_named(page: str) -> None:
    section = page.split("\n## Token ids\n")[1].split("\n## ")[0]
    names = TOKENIZE.honoured | DETOKENIZE.honoured
    assert {name for name in names if f"`{name}`" not in section} == {"model"}
