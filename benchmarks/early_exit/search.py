"""The best setting of each cell: the fastest that keeps exact match on pairs that were trained on, made stricter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.early_exit.candidates import Space, match_loss, shortlist
from benchmarks.early_exit.cells import Cell
from benchmarks.early_exit.contestant import FULL, Sample, Setting
from benchmarks.early_exit.data import matches
from benchmarks.early_exit.replay import first_answers, mean_depth, predicted_gain
from benchmarks.early_exit.study import MOST_STREAMS, Study, answers_of
from benchmarks.early_exit.turns import Prompts, Samples, against_full, groups_of, take_turns
from benchmarks.machine import load
from benchmarks.session import Json, ratio_json
from benchmarks.speculation.prompts import spread
from offramp.exits.frozen import FrozenPolicy

POINT = 0.01
"""Of exact match that a setting may lose against its own full depth where it is reported."""
SAFE = POINT / 2
"""The same where it is chosen: on other prompts the best of many loses a little more."""
RANKED = 64
"""Answers that are replayed to rank candidates."""
BUDGETS = (POINT, SAFE, 0.0)
STRICTER = 4
"""How much closer to 1 the chosen thresholds are moved: found on some hundred answers, each lets about one more of as
many new ones go wrong, and gains change little by it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a cell runs, and whether that was safe where it was chosen."""

    cell: Cell
    setting: Setting
    within: bool


def stricter(setting: Setting) -> Setting:
    """The same exits, and a part of the tokens that leave; exits that all take stay so."""
    assert setting.policy is not None
    thresholds = tuple(1 - (1 - each) / STRICTER if each > 0 else each for each in setting.policy.thresholds)
    return replace(setting, policy=replace(setting.policy, thresholds=thresholds))


class Search:
    """Runs candidates on the study's prompts; what one cell ran under `compact` serves the others."""

    def __init__(self, study: Study, *, timed: int, most: int) -> None:
        self._study = study
        self._right = [matches(study.loaded, *pair) for pair in zip(study.answers, study.prompts, strict=True)]
        self._timed = timed
        self._most = most
        self._shares: dict[tuple[Setting, int], float] = {}  # of right answers, by streams
        self.lines: list[Json] = []

    @property
    def exact(self) -> float:
        """Of full depth."""
        return sum(self._right) / len(self._right)

    def choose(self, cell: Cell) -> Choice:
        """Try the cell's candidates, and write a line for each."""
        settings = self._tried(cell, [Setting(policy, cell.batching) for policy in self._policies(cell)])
        exact = self._exact(cell, settings)
        groups = groups_of(self._study.prompts, cell.streams)[: max(2, self._timed // cell.streams)]
        samples = self._run([FULL, *settings], groups, f"{cell.name}, timing")
        told = [self._line(cell, setting, exact[setting], samples) for setting in settings]
        within = [place for place, line in enumerate(told) if line["within"]]
        if within:
            best = max(within, key=lambda place: float(told[place]["ratio"]["median"]))
        else:
            best = max(range(len(told)), key=lambda place: float(told[place]["exact"]))
        told[best]["chosen"] = True
        self.lines += told
        return Choice(cell, stricter(settings[best]), bool(within))

    def _policies(self, cell: Cell) -> list[FrozenPolicy]:
        """Worth a try, those first that should be fastest."""
        study, fill, streams = self._study, cell.fill, cell.streams
        loss = match_loss(study.scored, self._right)
        space = Space(scored=study.scored, loss=loss, costs=study.costs, fill=fill, streams=streams)
        found, sample = list(space.all()), first_answers(study.scored, RANKED)
        gains: dict[FrozenPolicy, float] = {}

        def gain(policy: FrozenPolicy) -> float:
            if policy not in gains:
                gains[policy] = predicted_gain(sample, Setting(policy, cell.batching), study.costs, streams)
            return gains[policy]

        chosen = shortlist(space, found, BUDGETS, gain)
        if cell.batching != "compact":  # who waits for all others gains by exits that all take
            chosen += shortlist(space, [each for each in found if each.policy.thresholds[-1] == 0.0], BUDGETS, gain)
        return sorted(dict.fromkeys(each.policy for each in chosen), key=gain, reverse=True)

    def _tried(self, cell: Cell, settings: Sequence[Setting]) -> list[Setting]:
        """Some over the whole range, then some between the fastest that is safe and the slowest faster one."""
        first = spread(settings, self._most)
        exact = self._exact(cell, first)
        places = [settings.index(each) for each in first]
        safe = next((n for n, each in enumerate(first) if self._is_safe(exact[each])), None)
        if safe is None:
            between = settings[places[-1] + 1 :]
        else:
            between = settings[places[safe - 1] + 1 : places[safe]] if safe else []
        return [*first, *spread(between, self._most)]

    def _is_safe(self, exact: float) -> bool:
        return exact >= self.exact - SAFE - 1e-9

    def _gain(self, setting: Setting, streams: int) -> float:
        return predicted_gain(self._study.scored, setting, self._study.costs, streams)

    def _exact(self, cell: Cell, settings: Sequence[Setting]) -> dict[Setting, float]:
        """Shares of right answers over all prompts; under `compact` they don't depend on the streams."""
        streams = MOST_STREAMS if cell.batching == "compact" else cell.streams
        missing = [setting for setting in settings if (setting, streams) not in self._shares]
        if missing:
            groups = groups_of(self._study.prompts, streams, rest=True)
            for setting, rounds in self._run(missing, groups, f"{cell.name}, exact match").items():
                self._shares[setting, streams] = self._share(rounds[0])
        return {setting: self._shares[setting, streams] for setting in settings}

    def _share(self, runs: Sequence[Sample]) -> float:
        study = self._study
        right = [matches(study.loaded, *pair) for pair in zip(answers_of(runs), study.prompts, strict=True)]
        return sum(right) / len(right)

    def _run(self, settings: Sequence[Setting], groups: Sequence[Prompts], what: str) -> Samples:
        study = self._study
        return take_turns(study.loaded, settings, groups, new_tokens=study.new_tokens, rounds=1, what=what)

    def _line(self, cell: Cell, setting: Setting, exact: float, samples: Samples) -> Json:
        study, policy = self._study, setting.policy
        assert policy is not None
        ratio = against_full(samples, setting)
        return {
            "result": "sweep",
            "cell": cell.name,
            "streams": cell.streams,
            "batching": cell.batching,
            "policy": policy.fields(),
            "exact": round(exact, 4),
            "full_exact": round(self.exact, 4),
            "within": self._is_safe(exact),
            "depth": round(mean_depth(study.scored, policy, study.loaded.config.num_layers), 2),
            "ratio": ratio_json(ratio) if ratio else {"median": 0.0, "low": 0.0, "high": 0.0},
            "predicted": round(self._gain(setting, cell.streams), 4),
            "chosen": False,
            "load": load(),
        }
