"""From prompts and a budget to a profile, with the reasons that people read in it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from offramp.bench.provenance import provenance
from offramp.bench.run.method import Method
from offramp.bench.run.turn import Facts
from offramp.bench.tune.candidates import Space
from offramp.bench.tune.halving import Tell
from offramp.bench.tune.rounds import Rounds, Stand
from offramp.bench.tune.search import Found, rounds_of, search
from offramp.bench.workloads.item import Item, Workload
from offramp.bench.workloads.read import check_readable
from offramp.core.profile import Gain, Profile, Trial
from offramp.draft import OFF
from offramp.draft.pack_file import shipped_drafter
from offramp.llm.profile_file import this_machine

SEED = 0
"""Of the order of the prompts, in which tasks come mixed."""


class StandForModel(Stand, Protocol):
    """One that knows its model."""

    def begin(self, plain: Method) -> Facts:
        """Start plain decoding."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for."""

    model: str
    workload: Workload
    space: Space
    max_tokens: int
    minutes: float

    def items(self) -> list[Item]:
        """The prompts in the order in which they are taken."""
        return random.Random(SEED).sample(self.workload.items, len(self.workload.items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came of it."""

    profile: Profile
    notes: Mapping[str, str]  # by option: why it is there
    lost: Sequence[str]  # a line for each method that is not recommended
    method: str
    tried: Mapping[str, Mapping[str, object]]  # by method, as JSON values

    def fields(self) -> dict[str, object]:
        """As one line of JSON."""
        profile = asdict(self.profile)
        return {"method": self.method, **profile, "tried": dict(self.tried), **provenance()}


def tune(wish: Wish, stand: StandForModel, tell: Tell) -> Tuned:
    """Search within the budget. An interrupt tells what was found so far, and goes on.

    Raises InvalidRequestError for a budget that is too small, OfframpError where plain decoding does not run.
    """
    began = time.monotonic()
    facts = stand.begin(wish.space.plain)
    check_readable(wish.workload, wish.model, chat=facts.chat)
    space = _with_shipped_drafter(wish.space, facts.source_hash)
    rounds = rounds_of(space, stand, len(wish.workload.items))
    try:
        found = search(space, rounds, tell)
    except KeyboardInterrupt:
        for line in ["stopped; no profile was written. So far:", *standing(rounds)]:
            tell(line)
        raise
    return _tuned(wish, space, facts, rounds, found, minutes=(time.monotonic() - began) / 60)


def standing(rounds: Rounds, found: Found | None = None) -> list[str]:
    """A line for each method that was tried and is not `found`, the fastest first, then those with faults."""
    chosen = {rounds.plain.name} if found is None else {rounds.plain.name, found.method.name}
    names = {name for each in rounds.rounds for name in each.timed} - chosen - set(rounds.faults)
    lines = [
        _result(name, rounds, found) for name in sorted(names, key=lambda name: (-_speed(name, rounds, found), name))
    ]
    lines += [f"{name}: left out: {fault}" for name, fault in rounds.faults.items()]
    lines += [f"{name}: not tried, for lack of time" for name in (() if found is None else found.skipped)]
    reasons = Counter(rounds.unanswered.values())
    return lines + [f"prompts left out: {count}, {reason}" for reason, count in reasons.items()]


def _speed(name: str, rounds: Rounds, found: Found | None) -> float:
    """Over plain decoding's: as it was confirmed, or else as it was when it was left behind."""
    gain = None if found is None else found.confirmed.get(name)
    return rounds.ratio(name) if gain is None else gain.ratio


def _result(name: str, rounds: Rounds, found: Found | None) -> str:
    gain = None if found is None else found.confirmed.get(name)
    count = f"{rounds.num_prompts(name)} answers"
    likeness = f", {rounds.likeness[name]}" if name in rounds.likeness else ""
    if gain is not None:
        return f"{name}: {_times(gain)} the speed of plain decoding, {count}{likeness}"
    return f"{name}: {rounds.ratio(name):.2f} times the speed of plain decoding, {count}{likeness}"


def _times(gain: Gain) -> str:
    return f"{gain.ratio:.2f} times ({gain.low:.2f} to {gain.high:.2f})"


def _with_shipped_drafter(space: Space, source_hash: str) -> Space:
    """A drafter pack that comes with the package for this very model is tried as if it had been named, unless "off"."""
    if space.drafter is not None or space.common.drafter == OFF:
        return space
    pack = shipped_drafter(lambda config: config.model == source_hash)
    return space if pack is None or pack.folder is None else replace(space, drafter=pack.folder.name)


def _tuned(wish: Wish, space: Space, facts: Facts, rounds: Rounds, found: Found, *, minutes: float) -> Tuned:
    flags = found.method.flags
    trial = Trial(
        workload=wish.workload.name,
        workload_sha256=wish.workload.sha256,
        num_prompts=len(wish.workload.items) - len(rounds.unanswered),
        streams=space.streams,
        max_tokens=wish.max_tokens,
        minutes=max(0.01, round(minutes, 2)),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    profile = Profile(
        model=wish.model,
        source_hash=facts.source_hash,
        risk=flags.risk,
        options=found.method.options,
        gain=None if found.gain is None else _rounded(found.gain),
        machine=this_machine(),
        trial=trial,
    )
    return Tuned(
        profile=profile,
        notes=_notes(space, rounds, found),
        lost=standing(rounds, found),
        method=found.method.name,
        tried=_tried(rounds, found),
    )


def _rounded(gain: Gain) -> Gain:
    return Gain(ratio=round(gain.ratio, 4), low=round(gain.low, 4), high=round(gain.high, 4), turns=gain.turns)


def _notes(space: Space, rounds: Rounds, found: Found) -> dict[str, str]:
    """Why each option is there."""
    method, first = found.method, space.formats[0]
    options, began, asked = method.options, found.simple.options, Method("", space.common).options
    notes = {name: "as asked for" for name in options if name in asked}
    structure = next(name for name in ("mode", "draft") if name in options)
    tuned = [name for name in options if options[name] != began.get(name)]
    if found.gain is None or found.simple.name == rounds.plain.name:
        notes[structure] = "nothing that drafts is surely faster than plain decoding"
    else:
        notes[structure] = f"{_times(found.gain)} the speed of plain decoding, in {found.gain.turns} turns of each"
    over = found.gain if found.simple.name == rounds.plain.name else found.over_simple
    without = (
        "surely faster than without it, before the last turns"
        if over is None
        else f"{_times(over)} the speed without it"
    )
    notes |= dict.fromkeys(tuned, without)
    if method.name in rounds.likeness:
        place = "weights" if method.flags.weights != first else structure
        beside = f"beside plain decoding with {first}" if place == "weights" else "beside plain decoding"
        notes[place] = "; ".join(
            [*([notes[place]] if place in notes else []), f"{rounds.likeness[method.name]} {beside}"]
        )
    return notes


def _tried(rounds: Rounds, found: Found) -> dict[str, dict[str, object]]:
    tried: dict[str, dict[str, object]] = {}
    for name in dict.fromkeys(name for each in rounds.rounds for name in each.timed):
        gain = found.confirmed.get(name)
        tried[name] = {
            "ratio": round(rounds.ratio(name), 4),
            "num_prompts": rounds.num_prompts(name),
            "confirmed": None if gain is None else asdict(_rounded(gain)),
        }
    for name, fault in rounds.faults.items():
        tried[name] = {"fault": fault}
    return tried
