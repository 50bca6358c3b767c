"""The best setting of each cell, chosen on one half of the held-out pairs: fastest within a point of exact match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.early_exit.candidates import Candidate, candidates, match_loss, shortlist
from benchmarks.early_exit.cells import Cell
from benchmarks.early_exit.contestant import FULL, Sample, Setting
from benchmarks.early_exit.data import matches
from benchmarks.early_exit.replay import mean_depth, predicted_gain
from benchmarks.early_exit.study import MOST_STREAMS, Study, answers_of
from benchmarks.early_exit.turns import Prompts, Samples, against_full, groups_of, take_turns
from benchmarks.machine import load
from benchmarks.session import Json, ratio_json
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.policy import Fill

POINT = 0.01
"""Of exact match that a setting may lose against its own full depth."""
BUDGETS = (POINT, 0.4 * POINT, 0.0)
FLOORS = (0.55, 0.7, 0.8)
"""Of the layers: for a fill that may cost quality which full depth's own answers do not show."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a cell runs, and whether that kept the point on the half where it was chosen."""

    cell: Cell
    setting: Setting
    within: bool


class Search:
    """Runs candidates on the study's prompts; what one cell ran under `compact` serves the others."""

    def __init__(self, study: Study, *, timed: int, most: int) -> None:
        self._study = study
        self._right = [matches(study.loaded, *pair) for pair in zip(study.answers, study.prompts, strict=True)]
        self._timed = timed
        self._most = most
        self._found: dict[tuple[Fill, int], list[Candidate]] = {}
        self._matched: dict[tuple[Setting, int], float] = {}  # by setting and streams
        self.lines: list[Json] = []

    @property
    def exact(self) -> float:
        """Of full depth."""
        return sum(self._right) / len(self._right)

    def choose(self, cell: Cell) -> Choice:
        """Try the cell's candidates, and write a line for each."""
        study = self._study
        settings = [Setting(policy, cell.batching) for policy in self._policies(cell)]
        exact = self._exact(settings, cell)
        groups = groups_of(study.prompts, cell.streams)[: max(2, self._timed // cell.streams)]
        samples = self._run([FULL, *settings], groups, f"{cell.name}, timing")
        told = [self._line(cell, setting, exact[setting], samples) for setting in settings]
        within = [place for place, line in enumerate(told) if line["within"]]
        if within:
            best = max(within, key=lambda place: float(told[place]["ratio"]["median"]))
        else:
            best = max(range(len(told)), key=lambda place: float(told[place]["exact"]))
        told[best]["chosen"] = True
        self.lines += told
        return Choice(cell, settings[best], bool(within))

    def _policies(self, cell: Cell) -> list[FrozenPolicy]:
        """The shortlist; under other batch policies than `compact`, of those that replay best."""
        study = self._study
        key = cell.fill, cell.streams
        if key not in self._found:
            loss = match_loss(study.scored, self._right)
            self._found[key] = list(candidates(study.scored, loss, study.costs, fill=cell.fill, streams=cell.streams))
        found = self._found[key]
        floors = [floor * study.loaded.config.num_layers for floor in FLOORS] if cell.fill == "propagate" else []
        chosen = shortlist(found, BUDGETS, floors)
        if cell.batching != "compact":
            capped = [each for each in found if each.policy.thresholds[-1] == 0.0]
            chosen = list(dict.fromkeys([*chosen, *shortlist(capped, BUDGETS, floors)]))
        gains = {
            each: predicted_gain(study.scored, Setting(each, cell.batching), study.costs, cell.streams)
            for each in chosen
        }
        return sorted(chosen, key=gains.__getitem__, reverse=True)[: self._most]

    def _exact(self, settings: Sequence[Setting], cell: Cell) -> dict[Setting, float]:
        """Shares of right answers over all prompts; under `compact` they don't depend on the streams."""
        streams = MOST_STREAMS if cell.batching == "compact" else cell.streams
        missing = [setting for setting in settings if (setting, streams) not in self._matched]
        if missing:
            groups = groups_of(self._study.prompts, streams, rest=True)
            for setting, rounds in self._run(missing, groups, f"{cell.name}, exact match").items():
                self._matched[setting, streams] = self._share(rounds[0])
        return {setting: self._matched[setting, streams] for setting in settings}

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
            "within": exact >= self.exact - POINT - 1e-9,
            "depth": round(mean_depth(study.scored, policy, study.loaded.config.num_layers), 2),
            "ratio": ratio_json(ratio) if ratio else {"median": 0.0, "low": 0.0, "high": 0.0},
            "predicted": round(predicted_gain(study.scored, setting, study.costs, cell.streams), 4),
            "chosen": False,
            "load": load(),
        }
