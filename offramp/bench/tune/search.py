"""The stages of the search, in the order in which options matter, and what comes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from offramp.bench.run.method import Method
from offramp.bench.tune.candidates import Space, lengths, limits, plain, structures
from offramp.bench.tune.compare import LEAST_PAIRS, gain
from offramp.bench.tune.halving import LEAST_TURNS, Tell, confirm, halve, least_seconds
from offramp.bench.tune.rounds import Rounds, Stand
from offramp.core.profile import Gain
from offramp.errors import InvalidRequestError

LEFT_AFTER_STRUCTURES, LEFT_AFTER_LENGTHS, LEFT_AFTER_LIMITS = 0.6, 0.45, 0.3
"""Parts of the budget; the rest confirms."""
FINALISTS = 3
"""The best as it is tuned, the best structure as it is by itself, and the second best; fewer where time is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is recommended, and why."""

    method: Method  # plain decoding, where nothing beat it
    simple: Method  # the structure that it began with: the method without what was tuned
    gain: Gain | None  # over plain decoding; None: nothing beat it
    over_simple: Gain | None = None  # of a tuned method, over a structure that is not plain decoding
    confirmed: Mapping[str, Gain] = field(default_factory=dict)  # finalists, over plain decoding
    skipped: Sequence[str] = ()  # what there was no time to try


def rounds_of(space: Space, stand: Stand, num_prompts: int) -> Rounds:
    """Rounds for the space, none of them played."""
    return Rounds(stand, [plain(space, fmt) for fmt in space.formats], num_prompts, space.streams)


def search(space: Space, rounds: Rounds, tell: Tell) -> Found:
    """The fastest options that surely beat plain decoding, or plain decoding itself.

    Raises InvalidRequestError if the budget does not even give every structure a turn, and what plain decoding raises.
    """
    methods = structures(space)
    reserve = _check_budget(methods, rounds, tell)
    budget = rounds.seconds_left()

    def left_after(part: float) -> float:
        return max(part * budget, reserve)

    ranked = halve(methods, rounds, left_after(LEFT_AFTER_STRUCTURES), tell)
    simple = ranked[0] if ranked and rounds.ratio(ranked[0].name) > 1 else rounds.plain
    best, skipped = _tuned(lengths(simple), simple, rounds, left_after(LEFT_AFTER_LENGTHS), tell)
    best, skipped_too = _tuned(limits(best, space), best, rounds, left_after(LEFT_AFTER_LIMITS), tell)
    contenders = {method.name: method for method in (best, simple, *ranked) if rounds.ratio(method.name) > 1}
    contenders.pop(rounds.plain.name, None)
    finalists = list(contenders.values())[:FINALISTS]
    while len(finalists) > 1 and least_seconds(finalists, rounds, LEAST_TURNS) > rounds.seconds_left():
        finalists.pop()
    rounds.keep(finalists)
    return _confirmed(finalists, best, simple, rounds, [*skipped, *skipped_too], tell)


def _check_budget(methods: Sequence[Method], rounds: Rounds, tell: Tell) -> float:
    """Play plain decoding's first turn; the seconds to keep for the end. Raises InvalidRequestError for too few."""
    tell("trying plain decoding")
    rounds.play((), rounds.streams)
    first, reserve = least_seconds(methods, rounds, 1), 2 * least_seconds((), rounds, LEAST_TURNS)
    if rounds.seconds_left() < first + reserve:
        minutes = math.ceil((rounds.seconds_spent() + first + reserve) / 6) / 10
        hint = "give more of them by --minutes, or ask for less by --max-tokens"
        message = f"trying {len(methods)} methods takes about {minutes:g} minutes here"
        raise InvalidRequestError(message, hint=hint, param="minutes")
    return reserve


def _tuned(
    variants: Sequence[Method], method: Method, rounds: Rounds, until: float, tell: Tell
) -> tuple[Method, list[str]]:
    """The method, or a variant that is surely better, and what of them was not tried, for lack of time.

    Half of the time finds the best of the variants, the other half sets it against the method.
    """
    if not variants:
        return method, []
    contenders, seconds = [method, *variants], rounds.seconds_left() - until
    if seconds < least_seconds(contenders, rounds, 1):
        return method, [variant.name for variant in variants]
    ranked = halve(contenders, rounds, until + seconds / 2, tell)
    both = [method, *ranked[:1]]
    if both[-1] is method or rounds.seconds_left() - until < least_seconds(both, rounds, LEAST_TURNS):
        return method, []
    tell(f"comparing {method.name} and {both[1].name}")
    since = confirm(both, rounds, tell, until)
    pairs = rounds.pairs(method.name, both[1].name, since)
    return (both[1] if len(pairs) >= LEAST_PAIRS and gain(pairs).low > 1 else method), []


def _confirmed(
    finalists: Sequence[Method], tuned: Method, simple: Method, rounds: Rounds, skipped: Sequence[str], tell: Tell
) -> Found:
    """Only what beats plain decoding by more than the noise; what is tuned only if it so beats what it began with."""
    if not finalists:
        return Found(method=rounds.plain, simple=rounds.plain, gain=None, skipped=skipped)
    tell(f"confirming {', '.join(method.name for method in finalists)}")
    since = confirm(finalists, rounds, tell)
    working = [method for method in finalists if method.name not in rounds.faults]
    gains = {each.name: gain(rounds.pairs(rounds.plain.name, each.name, since), len(working)) for each in working}
    passed = [method for method in working if gains[method.name].low > 1]
    if not passed:
        return Found(method=rounds.plain, simple=rounds.plain, gain=None, confirmed=gains, skipped=skipped)
    best, over_simple = max(passed, key=lambda method: gains[method.name].ratio), None
    if best is tuned and best is not simple and simple in working:
        over_simple = gain(rounds.pairs(simple.name, best.name, since))
        if over_simple.low <= 1 and simple in passed:
            best, over_simple = simple, None
    return Found(
        method=best,
        simple=simple if best is tuned else best,
        gain=gains[best.name],
        over_simple=over_simple,
        confirmed=gains,
        skipped=skipped,
    )
