"""With what, where and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from offramp.bench.report.given import Given
from offramp.bench.report.html import Html, cut, element
from offramp.bench.report.sections.pieces import block

MOST_FACTS = 80
VALUE_LETTERS = 400


def provenance(given: Given) -> Html:
    """What the run's first line says."""
    facts = list(_facts(given))
    shown = [pair for name, value in facts[:MOST_FACTS] for pair in _pair(name, value)]
    return block("Provenance", "What the run says of itself.", element("dl", *shown))


def written(value: object, *, inside: bool = False) -> str:
    """A value of JSON for people: `name: value` between semicolons; within one, lists and `name value` with commas."""
    if isinstance(value, Mapping):
        told = [f"{name}{' ' if inside else ': '}{written(each, inside=True)}" for name, each in value.items()]
        return (", " if inside else "; ").join(told) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(written(each, inside=True) for each in value) or "none"
    return "unknown" if value is None else str(value)


def place_and_time(facts: Mapping[str, object]) -> str:
    """The processor, and when; what a run does not say is left out."""
    told = [str(facts["cpu"])] if "cpu" in facts else []
    if "measured_at" in facts:
        told.append(_time(str(facts["measured_at"])))
    return " · ".join(told)


def _time(text: str) -> str:
    """To the minute; a text that is no time as it is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment:%Y-%m-%d %H:%M}{' UTC' if moment.utcoffset() == timedelta() else f' {moment:%Z}'.rstrip()}"


def _facts(given: Given) -> Iterator[tuple[str, object]]:
    run = given.run
    yield from (("file", given.name), ("model", run.model), ("tensors' hash", run.source_hash))
    yield from ((name.replace("_", " "), value) for name, value in run.provenance.items())
    yield from (("streams", run.streams), ("rounds", run.rounds), ("new tokens, at most", run.max_tokens))
    for name, facts in run.workloads.items():
        yield f"workload {name}", {key: value for key, value in facts.items() if key != "refused"}
    for name, options in run.methods.items():
        yield f"method {name}", {"promise": run.exactness.get(name), **options}


def _pair(name: str, value: object) -> tuple[Html, Html]:
    return element("dt", cut(name, VALUE_LETTERS)), element("dd", cut(written(value), VALUE_LETTERS))
