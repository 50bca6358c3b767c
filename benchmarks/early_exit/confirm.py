"""Chosen settings on pairs kept aside: rounds against full depth, exact match, and how deep tokens went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.early_exit.contestant import FULL, Setting
from benchmarks.early_exit.data import matches
from benchmarks.early_exit.replay import predicted_gain
from benchmarks.early_exit.search import POINT, Choice
from benchmarks.early_exit.study import MOST_STREAMS, Study, answers_of
from benchmarks.early_exit.summary import compare
from benchmarks.early_exit.turns import Prompts, Samples, decode_ratio, groups_of, take_turns
from benchmarks.machine import load
from benchmarks.ratios import Ratio
from benchmarks.session import Json, ratio_json
from offramp.bench.results.intervals import mean_change

Answers = dict[Setting, list[list[int]]]
"""Of all prompts."""


class TokensDifferError(Exception):
    """A token depended on who was in the batch: a bug, and no number is worth anything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Confirmation:
    """Pairs kept aside, and how many of them are timed."""

    study: Study  # of the pairs where settings were chosen
    prompts: Prompts
    timed: int
    rounds: int
    known: dict[tuple[Setting, int], list[list[int]]] = field(default_factory=dict)  # answers, by streams

    def lines(self, choices: Sequence[Choice]) -> Iterator[Json]:
        """A line for each choice, all of as many streams; and one for `compact` against the literal barrier."""
        streams = choices[0].cell.streams
        settings = list(dict.fromkeys([FULL, *(choice.setting for choice in choices)]))
        groups = groups_of(self.prompts, streams)[: max(1, self.timed // streams)]
        samples = self._turns(settings, groups, self.rounds, f"{streams} streams, confirming")
        answers = {setting: self._answers(setting, streams) for setting in settings}
        self._check(samples, answers)
        for choice in choices:
            yield self._line(choice, samples, answers)
        by_cell = {(choice.cell.batching, choice.cell.fill): choice.setting for choice in choices}
        compact, literal = by_cell.get(("compact", "propagate")), by_cell.get(("literal", "propagate"))
        if compact and literal:
            ratio = decode_ratio(samples[literal], samples[compact])
            yield {"result": "versus", "streams": streams, "ratio": ratio_json(ratio) if ratio else None}

    def _line(self, choice: Choice, samples: Samples, answers: Answers) -> Json:
        cell, setting = choice.cell, choice.setting
        assert setting.policy is not None
        full, early = self._right(answers[FULL]), self._right(answers[setting])
        return {
            "result": "cell",
            "cell": cell.name,
            "streams": cell.streams,
            "batching": cell.batching,
            "policy": setting.policy.fields(),
            "chosen_within": choice.within,
            "predicted": round(predicted_gain(self.study.scored, setting, self.study.costs, cell.streams), 4),
            "prompts": len(full),
            "full_exact": round(float(full.mean()), 4),
            "exact": round(float(early.mean()), 4),
            "points": ratio_json(points(full, early)),
            "within": float(early.mean() - full.mean()) >= -POINT - 1e-9,
            **compare(samples[FULL], samples[setting]),
            "load": load(),
        }

    def _answers(self, setting: Setting, streams: int) -> list[list[int]]:
        """To all prompts; under `compact` they don't depend on the streams, so many at once are asked."""
        together = MOST_STREAMS if setting.batching == "compact" else streams
        if (setting, together) not in self.known:
            groups = groups_of(self.prompts, together, rest=True)
            what = f"{together} streams, {setting.batching}, exact match"
            self.known[setting, together] = answers_of(self._turns([setting], groups, 1, what)[setting][0])
        return self.known[setting, together]

    def _check(self, samples: Samples, answers: Answers) -> None:
        """Under `compact` what was timed is what was judged, id for id, whatever the batch."""
        for setting, rounds in samples.items():
            for runs in rounds if setting.batching == "compact" else []:
                timed = answers_of(runs)
                if timed != answers[setting][: len(timed)]:
                    raise TokensDifferError(f"{setting}: answers depend on the batch, or on the round")

    def _right(self, answers: Sequence[list[int]]) -> NDArray[np.float64]:
        """1 for each answer that is the reference."""
        pairs = zip(answers, self.prompts, strict=True)
        return np.array([matches(self.study.loaded, *pair) for pair in pairs], dtype=np.float64)

    def _turns(self, settings: Sequence[Setting], groups: Sequence[Prompts], rounds: int, what: str) -> Samples:
        study = self.study
        return take_turns(study.loaded, settings, groups, new_tokens=study.new_tokens, rounds=rounds, what=what)


def points(full: NDArray[np.float64], early: NDArray[np.float64]) -> Ratio:
    """Points of exact match that early exits gain (+) or lose, with an interval over prompts; [prompts] both."""
    return Ratio.of(mean_change(100 * full, 100 * early, [None] * len(full)))
