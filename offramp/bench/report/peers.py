"""Other engines beside ours: the lines that `python -m benchmarks.peers` writes, read for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.bench.report.figures import figure
from offramp.bench.results.cells import Interval

MOST = 200
"""Comparisons of a file that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One engine in one case. `ratio` is our speed over its; above 1, we are faster."""

    case: str
    ours: str
    peer: str
    ratio: Interval
    our_speed: str
    peer_speed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """One file of them."""

    name: str
    comparisons: Sequence[Comparison]
    absent: Sequence[str]  # engines that did not run, and why
    num_hidden: int
    measured: Mapping[str, object]  # where and when


def is_peers_line(entry: Mapping[str, object]) -> bool:
    """Whether an object is a line of such a file."""
    return isinstance(entry.get("result"), str) and "kind" not in entry and isinstance(entry.get("provenance"), Mapping)


def peers_of(name: str, entries: Sequence[Mapping[str, object]]) -> Peers:
    """A file's lines. Raises ValueError for a comparison that lacks something."""
    told = [_comparison(entry) for entry in entries if entry["result"] == "comparison"]
    absent = [
        f"{_engine(entry)}: {entry.get('reason', 'did not run')}" for entry in entries if entry["result"] == "missing"
    ]
    if not told and not absent:
        raise ValueError("it compares with no other engine")
    measured = entries[0]["provenance"]
    assert isinstance(measured, Mapping)
    return Peers(
        name=name,
        comparisons=told[:MOST],
        absent=absent,
        num_hidden=max(0, len(told) - MOST),
        measured=measured,
    )


def _comparison(entry: Mapping[str, object]) -> Comparison:
    ours, theirs, given = (_mapping(entry, key) for key in ("ours", "theirs", "ratio"))
    numbers = [given.get(key) for key in ("median", "low", "high")]
    good = [float(each) for each in numbers if isinstance(each, int | float) and math.isfinite(each)]
    if len(good) != len(numbers):
        raise ValueError("a comparison without a ratio")
    return Comparison(
        case=str(entry.get("title", entry.get("case", "a case"))),
        ours=str(ours.get("weights", "")),
        peer=_engine(theirs),
        ratio=Interval(*good),
        our_speed=_speed(ours),
        peer_speed=_speed(theirs),
    )


def _mapping(entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = entry.get(key)
    if not isinstance(value, Mapping):
        raise ValueError(f"a comparison without {key}")
    return value


def _engine(facts: Mapping[str, object]) -> str:
    return f"{facts.get('peer', 'unknown')} {facts.get('weights', '')}".strip()


def _speed(facts: Mapping[str, object]) -> str:
    """As the file has it: tokens a second, or else milliseconds."""
    for key, unit in (("tokens_per_s", "tokens/s"), ("median_ms", "ms")):
        value = facts.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            return f"{figure(value)} {unit}"
    return ""
