"""Sides take turns on the same prompts; every answer must be the one that was there before, id for id."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from benchmarks.session import note
from benchmarks.speculation.contestant import Sample
from benchmarks.speculation.turns import Samples, TokensDifferError
from benchmarks.structured.contestant import SIDES, Contestant
from offramp.bench.run.rounds import order
from offramp.core import Grammar, StructuredOutputsParams
from offramp.draft import OFF
from offramp.engine.cost_table import CostTable
from offramp.grammar import Grammars
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_grammars

PLAIN, BOUND = "plain", "bound"
Groups = Sequence[Sequence[list[int]]]
"""Prompts that run at once."""


def cost_turns(loaded: LoadedModel, grammar: Grammar, groups: Groups, *, tokens: int, rounds: int) -> Samples:
    """Plain decoding, and the same number of tokens under a grammar; neither drafts.

    How many tokens that is comes from a run under the grammar that is not measured.
    """
    sides = {BOUND: Contestant(loaded, None, OFF, grammar), PLAIN: Contestant(loaded, None, OFF, None)}
    answers = [sides[BOUND].run(group, [tokens] * len(group)).token_ids for group in groups]
    limits = [[len(answer) for answer in together] for together in answers]
    samples: Samples = {name: [[] for _ in range(rounds)] for name in sides}
    for number in range(rounds):
        for place, group in enumerate(groups):
            for name in order(list(sides), number + place):
                samples[name][number].append(sides[name].run(group, limits[place]))
            if samples[BOUND][number][place].token_ids != answers[place]:
                raise TokensDifferError(f"group {place}: other tokens than before under the same grammar")
            plain = samples[PLAIN][number][place]
            assert [len(ids) for ids in plain.token_ids] == limits[place]
        note(f"    round {number + 1} of {rounds}")
    return samples


def forced_turns(
    loaded: LoadedModel, table: CostTable, grammar: Grammar, groups: Groups, *, tokens: int, rounds: int
) -> Samples:
    """One grammar without drafts, with forced tokens as drafts, and with all drafts. Engines are new each round."""
    samples: Samples = {name: [] for name in SIDES}
    for number in range(rounds + 1):
        sides = {name: Contestant(loaded, table, name, grammar) for name in SIDES}
        told: dict[str, list[Sample]] = {name: [] for name in SIDES}
        for place, group in enumerate(groups):
            for name in order(list(sides), number + place):
                told[name].append(sides[name].run(group, [tokens] * len(group)))
            _check_equal({name: runs[place] for name, runs in told.items()}, f"group {place}")
        if number:  # the first one warms up
            for name, runs in told.items():
                samples[name].append(runs)
            note(f"    round {number} of {rounds}")
    return samples


def compile_seconds(
    loaded: LoadedModel, asked: Mapping[str, StructuredOutputsParams], rounds: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds for the vocabulary, once a model, and for each grammar, a round each; nothing was compiled before."""
    vocabulary: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(rounds + 1):
        grammars = make_grammars(loaded)
        first = _seconds(grammars, StructuredOutputsParams(regex="a"))
        spent = {name: _seconds(grammars, each) for name, each in asked.items()}
        if number:  # the first one imports
            vocabulary.append(first)
            for name, value in spent.items():
                seconds[name].append(value)
    return vocabulary, seconds


def _seconds(grammars: Grammars, asked: StructuredOutputsParams) -> float:
    """To compile it."""
    begin = time.perf_counter()
    grammars.compile(asked)
    return time.perf_counter() - begin


def _check_equal(samples: Mapping[str, Sample], what: str) -> None:
    for name, sample in samples.items():
        if sample.token_ids != samples[OFF].token_ids:
            raise TokensDifferError(f"{what}: with {name} other tokens than without drafts")
