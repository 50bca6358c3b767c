"""What a setting should gain, by the cost model: every step replayed in arithmetic, with the exits that full depth's
own text would take.

It knows what rows leave where, what debts come along and who waits for whom, and nothing of the machine but the costs.
Text that changes because of exits, and K/V that was projected, are beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.early_exit.contestant import Setting
from benchmarks.early_exit.costs import StepCosts
from offramp.calibrate.predict import MAX_PENDING, Decisions, decide
from offramp.calibrate.scores import SIMILARITY, ScoredTokens
from offramp.exits.frozen import FrozenPolicy


def predicted_gain(scored: ScoredTokens, setting: Setting, costs: StepCosts, streams: int) -> float:
    """Decoding speed over full depth's, answers in groups of so many streams that begin together."""
    assert setting.policy is not None, "a setting with exits"
    replay = _Replay(setting.policy, setting.batching, costs, decide(scored, setting.policy))
    full = early = 0.0
    answers = np.split(np.arange(len(scored.prompts)), np.flatnonzero(np.diff(scored.prompts)) + 1)
    whole = len(answers) - len(answers) % streams or len(answers)
    for start in range(0, whole, streams):
        group = [tokens[1:].tolist() for tokens in answers[start : start + streams]]  # first ones come with the prompt
        replay.debts = {}
        for step in range(max(map(len, group))):
            rows = {stream: tokens[step] for stream, tokens in enumerate(group) if step < len(tokens)}
            besides = costs.besides[streams]
            full += costs.table.seconds(len(rows), replay.num_layers, costs.context, len(rows)) + besides
            early += replay.step(rows) + besides
    return full / early if early else 1.0


@dataclass(slots=True)
class _Air:
    """Rows of one step that still go deeper, and the debts with them."""

    rows: dict[int, int]  # stream -> token
    aboard: dict[int, int] = field(default_factory=dict)  # stream -> debts in the air

    @property
    def size(self) -> int:
        return len(self.rows) + sum(self.aboard.values())


class _Replay:
    """Steps of one policy; `debts` lie between them, by stream the depths where they wait."""

    def __init__(self, policy: FrozenPolicy, batching: str, costs: StepCosts, done: Decisions) -> None:
        self.num_layers = costs.table.num_layers
        self.debts: dict[int, list[int]] = {}
        self._policy = policy
        self._batching = batching
        self._costs = costs
        self._done = done
        before = [layer - 1 for layer in policy.layers if policy.predictor == SIMILARITY and layer > 1]
        self._stops = sorted({*policy.layers, *before})

    def step(self, rows: dict[int, int]) -> float:
        """Seconds of one token for each of these streams, besides what a step takes anyway."""
        air = _Air(dict(rows))
        open_ = dict(rows)  # not chosen yet
        chosen: dict[int, int] = {}  # fly on, and the depth of their exit
        seconds, depth, sure = 0.0, 0, set[int]()
        while air.rows and depth < self.num_layers:
            self._join(air, depth)
            stop = self._next(air, depth, bool(open_))
            seconds += self._costs.range(air.size, stop - depth)
            depth = stop
            if depth not in self._policy.layers or not open_:
                continue
            exit_ = self._policy.layers.index(depth)
            seconds += self._ask(open_, exit_)
            picked = [stream for stream, token in open_.items() if self._done.left[token] == exit_]
            if self._batching == "literal":
                sure |= set(picked)
                picked = list(open_) if sure >= open_.keys() else []
            chosen |= dict.fromkeys(picked, depth)
            for stream in picked:
                del open_[stream]
            if self._batching == "compact" or not open_:
                seconds += self._leave(air, chosen, depth)
                chosen = {}
        seconds += self._fill(chosen)
        return seconds + self._costs.table.head.at(len(open_))

    def _join(self, air: _Air, depth: int) -> None:
        for stream in air.rows:
            waiting = self.debts.get(stream, [])
            joining = waiting.count(depth)
            if joining:
                air.aboard[stream] = air.aboard.get(stream, 0) + joining
                self.debts[stream] = [other for other in waiting if other != depth]

    def _next(self, air: _Air, depth: int, asking: bool) -> int:
        """Where the range ends: an exit point, a debt that waits, or the last layer."""
        stops = [stop for stop in self._stops if asking and stop > depth]
        stops += [debt for stream in air.rows for debt in self.debts.get(stream, []) if debt > depth]
        return min(stops, default=self.num_layers)

    def _ask(self, open_: dict[int, int], exit_: int) -> float:
        tokens = list(open_.values())
        again = self._batching == "literal"  # who was sure before is asked anew
        ask = self._costs.ask[self._policy.layers[exit_]]
        seconds = ask.at(len(tokens) if again else int(self._done.headed[tokens, exit_].sum()))
        if self._policy.predictor != "none":
            seconds += self._costs.guess[self._policy.predictor].at(len(tokens))
        return seconds

    def _leave(self, air: _Air, leaving: dict[int, int], depth: int) -> float:
        """Who leaves owes, or has its K/V projected from where its token came from."""
        if self._policy.fill == "propagate":
            for stream in leaving:
                del air.rows[stream]
            return self._fill(leaving)
        for stream in leaving:
            waiting, aboard = self.debts.setdefault(stream, []), air.aboard.get(stream, 0)
            if len(waiting) + aboard < MAX_PENDING:
                waiting += [depth] * (1 + aboard)
                air.aboard.pop(stream, None)
                del air.rows[stream]
        return 0.0

    def _fill(self, exits: dict[int, int]) -> float:
        """K/V of what exits skipped, a call for each depth."""
        if self._policy.fill != "propagate":
            return 0.0
        depths = list(exits.values())
        return sum(
            self._costs.fill.at(depths.count(depth)) * (self.num_layers - depth) for depth in sorted(set(depths))
        )


def first_answers(scored: ScoredTokens, count: int) -> ScoredTokens:
    """The tokens of so many answers."""
    kept = scored.prompts < count
    return replace(
        scored,
        measures={name: scores[kept] for name, scores in scored.measures.items()},
        predictors={name: scores[kept] for name, scores in scored.predictors.items()},
        agreed=scored.agreed[kept],
        prompts=scored.prompts[kept],
        asked=scored.asked[kept],
    )


def mean_depth(scored: ScoredTokens, policy: FrozenPolicy, num_layers: int) -> float:
    """Layers that a token takes, those that come with the prompt aside; as `compact` has it."""
    depths: NDArray[np.int64] = np.array([*policy.layers, num_layers])[decide(scored, policy).left]
    return float(depths[scored.asked].mean()) if scored.asked.any() else float(num_layers)
