"""What is tried: methods that keep the promise, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from offramp.bench.run.method import Method, methods_of
from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT, OFF
from offramp.draft.length import LENGTHS
from offramp.llm.model_flags import ModelFlags, whole_number
from offramp.llm.serving import CALIBRATED, LOSSLESS

UNWEIGHTED = (AUTO, "ngram", "suffix")
"""Who drafts without weights; `auto` with all that are given."""
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
    return _renamed(space, fmt, methods_of([], _base(space, fmt))[0])


def structures(space: Space) -> list[Method]:
    """Who drafts, or which certified exits tokens take; and plain decoding with other weights than the first.

    Raises InvalidRequestError for what can't be.
    """
    weighted = {EAGLE: space.drafter, EARLY_EXIT: space.exits, DRAFT_MODEL: space.draft_model, CALIBRATED: space.risk}
    names = [*UNWEIGHTED, *(name for name, given in weighted.items() if given is not None)]
    found = []
    for fmt in space.formats:
        methods = [_renamed(space, fmt, method) for method in methods_of(names, _base(space, fmt))]
        found += methods[1:] if fmt == space.formats[0] else methods
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


def _base(space: Space, fmt: str) -> ModelFlags:
    """From what methods take what they use."""
    drafter = space.common.drafter if space.drafter is None else space.drafter
    packs = replace(space.common, exits=space.exits, drafter=drafter, draft_model=space.draft_model)
    return replace(packs, weights=fmt, risk=space.risk)


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


def _renamed(space: Space, fmt: str, method: Method) -> Method:
    """By its weights, where they are not the first."""
    return method if fmt == space.formats[0] else replace(method, name=f"{method.name} {fmt}")
