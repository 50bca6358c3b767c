"""What is tried: methods that keep the promise, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from offramp.bench.results.lines import PLAIN
from offramp.bench.run.method import Method
from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT, OFF
from offramp.draft.length import LENGTHS
from offramp.llm.model_flags import ModelFlags, whole_number
from offramp.llm.serving import CALIBRATED, LOSSLESS

SHORTER = (8, 4)
"""Draft tokens of a step at most; by itself it is 16."""
CHUNKS = (128, 256, 1024)
"""Tokens of a step; by themselves 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Within what is searched."""

    common: ModelFlags  # what all methods have; threads where they are given
    formats: tuple[str, ...]  # of the weights; the first is what all are compared with
    streams: int  # requests at once
    num_cpus: int
    exits: str | None = None
    drafter: str | None = None
    draft_model: str | None = None
    risk: float | None = None

    @property
    def plain(self) -> Method:
        """What all others are compared with."""
        return plain(self, self.formats[0])


def plain(space: Space, fmt: str) -> Method:
    """Plain decoding with weights of a format."""
    return Method(_name(space, PLAIN, fmt), replace(space.common, weights=fmt, draft=OFF))


def structures(space: Space) -> list[Method]:
    """Who drafts, or which certified exits tokens take; and plain decoding with other weights than the first."""
    found = []
    for fmt in space.formats:
        if fmt != space.formats[0]:
            found.append(plain(space, fmt))
        base = replace(space.common, weights=fmt)
        found += [Method(_name(space, name, fmt), flags) for name, flags in _structures(space, base)]
    return found


def lengths(method: Method) -> list[Method]:
    """The same method with shorter drafts, or with another rule for their length."""
    if method.flags.mode != LOSSLESS or method.flags.draft == OFF:
        return []
    shorter = [_changed(method, "max_draft", most) for most in SHORTER]
    return shorter + [_changed(method, "draft_length", name) for name in LENGTHS if name != method.flags.draft_length]


def limits(method: Method, space: Space) -> list[Method]:
    """The same method with fewer threads, or, where requests run side by side, with other limits of a batch."""
    found = [] if space.common.threads is not None else _changes(method, "threads", _halves(space.num_cpus))
    if space.streams > 1:
        at_once = {space.streams, space.streams // 2, space.streams // 4} - {0, 1}
        most = whole_number("max_num_seqs", method.flags.max_num_seqs)
        different = [
            count for count in sorted(at_once, reverse=True) if min(count, space.streams) != min(most, space.streams)
        ]
        found += _changes(method, "max_num_seqs", different)
        found += _changes(method, "max_num_batched_tokens", CHUNKS)
    return found


def _structures(space: Space, base: ModelFlags) -> Iterable[tuple[str, ModelFlags]]:
    packs = {"exits": space.exits, "drafter": space.drafter, "draft_model": space.draft_model}
    given = {name: pack for name, pack in packs.items() if pack is not None}
    yield AUTO, replace(base, draft=AUTO, **given)  # type: ignore[arg-type]
    yield "ngram", replace(base, draft="ngram")
    yield "suffix", replace(base, draft="suffix")
    if space.drafter is not None:
        yield EAGLE, replace(base, draft=EAGLE, drafter=space.drafter)
    if space.exits is not None:
        yield EARLY_EXIT, replace(base, draft=EARLY_EXIT, exits=space.exits)
    if space.draft_model is not None:
        yield DRAFT_MODEL, replace(base, draft=DRAFT_MODEL, draft_model=space.draft_model)
    if space.risk is not None:
        yield CALIBRATED, replace(base, mode=CALIBRATED, exits=space.exits, risk=space.risk)


def _halves(count: int) -> list[int]:
    """Half of it, half of that, and so on, down to 1."""
    found = []
    while count > 1:
        count //= 2
        found.append(count)
    return found


def _changes(method: Method, option: str, values: Iterable[int]) -> list[Method]:
    return [_changed(method, option, value) for value in values]


def _changed(method: Method, option: str, value: object) -> Method:
    return Method(f"{method.name} {option}={value}", method.flags.replaced({option: value}))


def _name(space: Space, name: str, fmt: str) -> str:
    return name if fmt == space.formats[0] else f"{name} {fmt}"
