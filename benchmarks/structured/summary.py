"""Samples become one line a result, with the target that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median

from benchmarks.machine import load
from benchmarks.session import Json, ratio_json
from benchmarks.speculation.contestant import Sample
from benchmarks.speculation.rates import speed_ratio
from benchmarks.speculation.summary import acceptance, decoding, step_shares, whole
from benchmarks.speculation.turns import Samples
from benchmarks.structured.contestant import FORCED
from benchmarks.structured.turns import BOUND, PLAIN
from offramp.draft import OFF

COST_TARGET = 1.1
"""Times plain decoding's seconds a token, under a grammar that hardly binds."""
GAIN_TARGET = 1.0
"""Times the tokens a second without drafts, for forced tokens: the whole interval lies above."""


def cost_line(grammar: str, streams: int, samples: Samples) -> Json:
    """What a grammar costs: seconds a token under it over plain ones, for the same numbers of tokens."""
    plain, bound = samples[PLAIN], samples[BOUND]
    members = _decoding(bound)
    if not members:
        return _missing(grammar, streams, "every answer had one token")
    ratio = ratio_json(speed_ratio(decoding(bound), decoding(plain), [members]))
    before, after = _flat(plain, members), _flat(bound, members)
    return {
        "result": "cost",
        "grammar": grammar,
        "streams": streams,
        "groups": len(members),
        "ratio": ratio,
        "target": COST_TARGET,
        "met": ratio["median"] <= COST_TARGET,
        "tokens": sum(sample.tokens for sample in after) // len(bound),
        "plain_ms_per_step": step_shares(before),
        "ms_per_step": step_shares(after),
        "rounds": len(bound),
        "load": load(),
    }


def forced_line(side: str, streams: int, samples: Samples) -> Json:
    """What drafts gain on a fixed schema, over the same grammar without any."""
    plain, drafted = samples[OFF], samples[side]
    members = sorted({*_decoding(plain)} & {*_decoding(drafted)})
    if not members:
        return _missing(f"fixed schema, {side}", streams, "every answer was whole after one step")
    ratio = ratio_json(speed_ratio(decoding(plain), decoding(drafted), [members]))
    before, after = _flat(plain, members), _flat(drafted, members)
    return {
        "result": "forced",
        "drafts": side,
        "streams": streams,
        "groups": len(members),
        "ratio": ratio,
        "end_to_end": ratio_json(speed_ratio(whole(plain), whole(drafted), [members])),
        "target": GAIN_TARGET if side == FORCED else None,
        "met": ratio["low"] > GAIN_TARGET,
        "tokens": sum(sample.tokens for sample in after) // len(drafted),
        "plain_tokens_per_s": _tokens_per_s(before),
        "tokens_per_s": _tokens_per_s(after),
        **acceptance(after),
        "plain_ms_per_step": step_shares(before),
        "ms_per_step": step_shares(after),
        "rounds": len(drafted),
        "load": load(),
    }


def compile_lines(vocabulary: Sequence[float], seconds: Mapping[str, Sequence[float]]) -> list[Json]:
    """How long it takes until a grammar can be used: the vocabulary, once a model, then each grammar."""
    named = {"vocabulary": vocabulary, **seconds}
    return [
        {
            "result": "compile",
            "what": name,
            "median_ms": round(1000 * median(values), 3),
            "range_ms": [round(1000 * min(values), 3), round(1000 * max(values), 3)],
            "rounds": len(values),
            "load": load(),
        }
        for name, values in named.items()
    ]


def _missing(grammar: str, streams: int, reason: str) -> Json:
    return {"result": "missing", "grammar": grammar, "streams": streams, "reason": reason}


def _decoding(rounds: Sequence[Sequence[Sample]]) -> list[int]:
    """Groups in which something was decoded; the same in each round."""
    return [place for place, sample in enumerate(rounds[0]) if sample.decoded]


def _flat(rounds: Sequence[Sequence[Sample]], members: Sequence[int]) -> list[Sample]:
    return list(chain.from_iterable([runs[place] for place in members] for runs in rounds))


def _tokens_per_s(samples: Sequence[Sample]) -> float:
    return round(sum(sample.decoded for sample in samples) / sum(sample.decode_s for sample in samples), 2)
