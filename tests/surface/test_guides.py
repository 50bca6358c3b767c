"""The guides docs/from-*.md: every flag, argument, field, route and metric of ours that their tables name is there.

A table's second column is ours, its heading says of what. *same* claims that ours has the first column's names, *not
there* and *refused* that it hasn't, *no effect* that it accepts them. Flags of other servers lead to a hint.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families

from offramp import LLM, SamplingParams, StructuredOutputsParams
from offramp.cli.app import build_app
from offramp.cli.foreign_flags import FOREIGN
from offramp.serve import fields as lists
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing
from tests.serve.asking import served

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs").glob("from-*.md"))
PROGRAM = typer.main.get_command(build_app())

SAME, ABSENT, IDLE = "same", ("not there", "refused"), "no effect"
NESTED = {
    "offramp": lists.OFFRAMP.honoured,
    "stream_options": lists.STREAM_OPTIONS.honoured,
    "structured_outputs": lists.STRUCTURED_OUTPUTS.honoured,
}
HONOURED = lists.CHAT.honoured | lists.COMPLETION.honoured
WITHOUT_EFFECT = lists.CHAT.without_effect | lists.COMPLETION.without_effect


@dataclass(frozen=True)
class Row:
    """One line of a table: their names, our cell."""

    where: str
    kind: str
    theirs: tuple[str, ...]
    ours: str


def rows(page: str, text: str) -> Iterator[Row]:
    """Every row of every table of three columns; `where` is the page and the line."""
    kind = ""
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 3 or cells[2].startswith("---"):
            kind = kind if cells else ""
        elif not kind:
            kind = cells[1].strip("`")
        else:
            yield Row(f"{page}:{number}", kind, tuple(spans(cells[0])), cells[1])


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def flag(span: str) -> str:
    """`--draft-length goodput` -> --draft-length"""
    return re.split(r"[ =]", span)[0]


def options_of(command: str) -> frozenset[str]:
    [name] = command.split()[1:]
    return frozenset(each for option in PROGRAM.commands[name].params for each in option.opts)  # type: ignore[attr-defined]


def faults_of_flags(row: Row) -> list[str]:
    """A command's: ours are its options; theirs, for the server, are its options or lead to a hint."""
    own = options_of(row.kind)
    theirs = [flag(span) for span in row.theirs if span.startswith("-")]
    wrong = [name for name in map(flag, spans(row.ours)) if name.startswith("-") and name not in own]
    wrong += [name for name in theirs if row.ours == SAME and name not in own]
    wrong += [name for name in theirs if row.ours in ABSENT and name in own]
    if row.kind == "offramp serve":
        wrong += [name for name in theirs if name not in own | set(FOREIGN)]
    return wrong


def faults_of_names(row: Row, known: frozenset[str]) -> list[str]:
    """A class's or call's arguments."""
    ours = [flag(span) for span in spans(row.ours)]
    return [name for name in ours if name not in known] + unlike(row, known)


def unlike(row: Row, known: frozenset[str]) -> list[str]:
    if row.ours == SAME:
        return [name for name in row.theirs if name not in known] or ([] if row.theirs else ["nothing"])
    return [name for name in row.theirs if row.ours in ABSENT and name in known]


def faults_of_fields(row: Row) -> list[str]:
    wrong = []
    for outer, _, inner in (span.partition(".") for span in spans(row.ours)):
        if outer not in HONOURED or (inner and inner not in NESTED[outer]):
            wrong.append(f"{outer}.{inner}")
    if row.ours == IDLE:
        wrong += [name for name in row.theirs if name not in WITHOUT_EFFECT]
    if row.ours in ABSENT:
        wrong += [name for name in row.theirs if name in WITHOUT_EFFECT]
    return wrong + unlike(row, HONOURED)


def parameters(call: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(call).parameters) - {"self"}


def field_names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


ARGUMENTS = {
    "LLM": parameters(LLM.__init__),
    "SamplingParams": field_names(SamplingParams),
    "StructuredOutputsParams": field_names(StructuredOutputsParams),
}


@pytest.fixture(scope="module")
def server() -> dict[str, frozenset[str]]:
    """Routes and metrics of a running server, under the tables' headings."""
    with served(scripted_model(mixing(chat_tokenizer().vocab_size, first=3), num_pages=16)) as api:
        paths = api.app.openapi()["paths"]
        families = list(text_string_to_metric_families(api.get("/metrics").text))
    metrics = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    return {"route": frozenset(routes), "metric": frozenset(metrics)}


def faults(row: Row, server: dict[str, frozenset[str]]) -> list[str]:
    """What a row claims wrongly."""
    if row.kind.startswith("offramp "):
        return faults_of_flags(row)
    if row.kind == "request field":
        return faults_of_fields(row)
    if row.kind in server:
        wrong = [name for name in spans(row.ours) if name not in server[row.kind]]
        return wrong + unlike(row, server[row.kind])
    return faults_of_names(row, ARGUMENTS[row.kind])


ALL = [row for page in GUIDES for row in rows(page.name, page.read_text(encoding="utf-8"))]


def test_there_are_tables_of_every_kind() -> None:
    assert [page.name for page in GUIDES] == ["from-llama-cpp.md", "from-transformers.md", "from-vllm.md"]
    assert len(ALL) > 150
    kinds = {row.kind for row in ALL}
    assert kinds == {
        *("offramp serve", "offramp generate", "offramp chat"),
        *("LLM", "SamplingParams", "StructuredOutputsParams"),
        *("request field", "route", "metric"),
    }


@pytest.mark.parametrize("row", ALL, ids=[row.where for row in ALL])
def test_what_a_guide_says_of_us_is_true(row: Row, server: dict[str, frozenset[str]]) -> None:
    assert faults(row, server) == []


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("`offramp serve`", "| `--model` | `--modell` | |"),
        ("`offramp serve`", "| `--draft-model` | not there | |"),
        ("`offramp serve`", "| `--kv-offloading-size` | `--kv` | |"),  # theirs, without a hint
        ("`offramp serve`", "| `--dtype` | same | |"),
        ("`offramp chat`", "| `-n` | `--json-schema` | |"),
        ("`LLM`", "| `dtype` | `weight` | |"),
        ("`SamplingParams`", "| `top_k` | not there | |"),
        ("`SamplingParams`", "| `best_of` | same | |"),
        ("request field", "| `n_predict` | `max_new_tokens` | |"),
        ("request field", "| `n_predict` | `offramp.drafts` | |"),
        ("request field", "| `top_k`, `user` | refused | |"),
        ("request field", "| `top_k` | no effect | |"),
        ("route", "| `GET /slots` | `GET /slots` | |"),
        ("metric", "| `vllm:num_requests_running` | `offramp:requests_running` | |"),
    ],
)
def test_a_wrong_row_is_found(kind: str, line: str, server: dict[str, frozenset[str]]) -> None:
    [row] = rows("page.md", f"| theirs | {kind} | |\n|---|---|---|\n{line}\n")
    assert faults(row, server) != []
