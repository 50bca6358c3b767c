"""The ratios of a run, part by part; sides take turns within a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.check import figures, prompts
from benchmarks.session import note
from benchmarks.speculation.contestant import AUTO, PLAIN, STREAMS, Sample
from benchmarks.speculation.turns import one_stream
from benchmarks.structured import cases
from benchmarks.structured.contestant import FORCED, Contestant
from benchmarks.structured.turns import BOUND, cost_turns, forced_turns
from benchmarks.structured.turns import PLAIN as UNBOUND
from offramp.bench.run.rounds import order
from offramp.core import PAGE_SIZE
from offramp.draft import OFF
from offramp.engine.cost_table import CostTable
from offramp.engine.probe import Probe, pages_for_rows
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_grammars

CONTEXT = 2048
"""Of the model as loaded: enough for the longest prompt."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    rounds: int
    new_tokens: int = 64
    schema_tokens: int = 160  # enough for every answer to end
    prompts: int = 3  # of each grammar
    calls: int = 20  # of the executor, for each number of rows
    prefill_len: int = 512
    long_len: int = 1500


SMOKE = Size(rounds=1, new_tokens=8, prompts=1, calls=2, prefill_len=64, long_len=96)
Ratios = dict[str, list[float]]
"""A ratio a round, by the figure's name."""
Part = Callable[[LoadedModel, CostTable, Size], Ratios]


def drafting(loaded: LoadedModel, table: CostTable, size: Size) -> Ratios:
    """Auto against plain decoding, every answer the same."""
    told: Ratios = {}
    for figure, asked in ((figures.COPYING, prompts.copying(loaded)), (figures.UNLIKE, prompts.unlike(loaded))):
        sides = (PLAIN, AUTO)
        samples = one_stream(loaded, table, asked, sides, new_tokens=size.new_tokens, rounds=size.rounds, side_rounds=0)
        plain, auto = samples[PLAIN.name], samples[AUTO.name]
        told[figure.name] = by_round(plain, auto)
        told[figures.BESIDES.name] = [_besides(runs) for runs in plain]
    return told


def structured(loaded: LoadedModel, table: CostTable, size: Size) -> Ratios:
    """A grammar that hardly binds against plain decoding; forced tokens as drafts against none."""
    compiled = make_grammars(loaded)
    asked = cases.groups(cases.prompts(loaded, cases.DESCRIBE, size.prompts), 1)
    wide = compiled.compile(cases.WIDE["json_object"])
    bound = cost_turns(loaded, wide, asked, tokens=size.new_tokens, rounds=size.rounds)
    asked = cases.groups(cases.prompts(loaded, cases.REPORT, size.prompts), 1)
    fixed = compiled.compile(cases.FIXED)
    forced = forced_turns(loaded, table, fixed, asked, tokens=size.schema_tokens, rounds=size.rounds)
    return {
        figures.GRAMMAR.name: by_round(bound[BOUND], bound[UNBOUND]),
        figures.FORCED.name: by_round(forced[OFF], forced[FORCED]),
    }


def rows(loaded: LoadedModel, table: CostTable, size: Size) -> Ratios:
    """Calls of the executor alone, on one row and on several, behind 256 tokens."""
    executor, counts = loaded.executor, (1, 4, 16)
    pages = np.arange(256 // PAGE_SIZE + pages_for_rows(max(counts)), dtype=np.int32)
    probe = Probe.over(pages, context=256, num_rows=max(counts))
    for page in range(len(probe.context_pages)):
        probe.write_page(executor, page)

    def seconds(count: int) -> float:
        asked = probe.rows(count, probe.context)
        times = []
        for _ in range(size.calls + 1):
            begin = time.perf_counter()
            executor.logits(executor.run_layers(executor.embed(asked), asked, 0, executor.config.num_layers))
            times.append(time.perf_counter() - begin)
        return median(times[1:])  # the first comes after calls of another size

    rounds = [{count: seconds(count) for count in counts} for _ in range(size.rounds)]
    return {
        figures.ROWS_4.name: [spent[4] / spent[1] for spent in rounds],
        figures.ROWS_16.name: [spent[16] / spent[1] for spent in rounds],
    }


def steps(loaded: LoadedModel, table: CostTable, size: Size) -> Ratios:
    """Prompts, long texts and many streams against one short stream, without drafts."""
    side = Contestant(loaded, None, OFF, None)
    drawn = np.random.default_rng(0).integers(100, loaded.config.vocab_size, size.long_len).tolist()
    asked = {
        "short": ([drawn[:64]], 33),
        "prefill": ([drawn[: size.prefill_len]], 2),
        "long": ([drawn], 17),
        "streams": ([drawn[place : place + 32] for place in range(STREAMS)], 33),
    }
    told: Ratios = {figure.name: [] for figure in (figures.PREFILL, figures.LONG, figures.STREAMS)}
    side.run(*_limited(*asked["short"]))
    for number in range(size.rounds):
        ran = {name: side.run(*_limited(*asked[name])) for name in order(list(asked), number)}
        step = seconds_a_token([ran["short"]])
        told[figures.PREFILL.name].append(ran["prefill"].first / step)
        told[figures.LONG.name].append(seconds_a_token([ran["long"]]) / step)
        told[figures.STREAMS.name].append(step / seconds_a_token([ran["streams"]]))
    return told


PARTS: dict[str, Part] = {"drafting": drafting, "structured": structured, "rows": rows, "steps": steps}


def measure(loaded: LoadedModel, table: CostTable, size: Size, parts: Sequence[str]) -> dict[str, Ratios]:
    """The ratios of each part."""
    told = {}
    for name in parts:
        note(name)
        told[name] = PARTS[name](loaded, table, size)
    return told


def by_round(above: Sequence[Sequence[Sample]], below: Sequence[Sequence[Sample]]) -> list[float]:
    """Seconds a token of one side over those of the other, a round each."""
    return [seconds_a_token(one) / seconds_a_token(other) for one, other in zip(above, below, strict=True)]


def seconds_a_token(runs: Sequence[Sample]) -> float:
    """Of what comes after the first tokens, summed over the runs of a round."""
    return sum(run.decode_s for run in runs) / sum(run.decoded for run in runs)


def _besides(runs: Sequence[Sample]) -> float:
    run_s = sum(run.counts.run_s for run in runs)
    return (sum(run.counts.step_s for run in runs) - run_s) / run_s


def _limited(asked: list[list[int]], new_tokens: int) -> tuple[list[list[int]], list[int]]:
    return asked, [new_tokens] * len(asked)
