"""What every exit point would have said of every token of answers at full depth: scores, and whether it agreed.

One prefill a text, stopped at each exit point, with the head for all tokens: cheap beside generating. It shows what
leaves would be right as long as what came before is full depth's; what really leaves is measured later.
Shapes: tokens = all tokens of all answers in order, exits = exit points from shallow to deep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.calibrate.answers import Answer, Rig, Tell
from offramp.calibrate.plain import Places, parts
from offramp.calibrate.prefill import Call, calls
from offramp.core import Ids
from offramp.exits.measures import MEASURES, Scores
from offramp.exits.predictors import Predictor
from offramp.llm.exits import LoadedExits
from offramp.model.executor import Hidden

SIMILARITY = "similarity"
KINDS = ("pack", SIMILARITY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredTokens:
    """Scores are NaN, and nothing agrees, where no exit is asked: at the first token of each answer."""

    layers: tuple[int, ...]  # exit points
    measures: Mapping[str, NDArray[np.float32]]  # by name, [tokens, exits]
    predictors: Mapping[str, NDArray[np.float32]]  # by whose, [tokens, exits]
    agreed: NDArray[np.bool_]  # [tokens, exits], the exit draws the token that full depth drew
    prompts: NDArray[np.int64]  # [tokens], which answer
    asked: NDArray[np.bool_]  # [tokens], exits are


def predictors_of(exits: LoadedExits) -> dict[str, Mapping[int, Predictor]]:
    """Whom a policy of the pack may ask before a head, by exit point."""
    tables = {kind: exits.predictors(kind) for kind in KINDS}
    return {kind: table for kind, table in tables.items() if table}


def score_tokens(rig: Rig, exits: LoadedExits, answers: Sequence[Answer], tell: Tell) -> ScoredTokens:
    """Scores of all exit points for all tokens but the first ones."""
    scorer = _Scorer(rig, exits, answers)
    for call in calls(rig.engine, [answer.text_ids for answer in answers]):
        scorer.add(call)
        tell(call.pieces[-1].text + 1, len(answers))
    return scorer.scored


class _Scorer:
    """Fills the arrays of one `ScoredTokens`."""

    def __init__(self, rig: Rig, exits: LoadedExits, answers: Sequence[Answer]) -> None:
        lengths = np.array([len(answer) for answer in answers])
        self._rig = rig
        self._exits = exits
        self._predictors = predictors_of(exits)
        self._layers = exits.pack.config.layers
        self._answers = answers
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        shape = int(lengths.sum()), len(self._layers)
        asked = np.ones(shape[0], np.bool_)
        asked[self._starts[:-1]] = False
        self.scored = ScoredTokens(
            layers=self._layers,
            measures={name: np.full(shape, np.nan, np.float32) for name in MEASURES},
            predictors={name: np.full(shape, np.nan, np.float32) for name in self._predictors},
            agreed=np.zeros(shape, np.bool_),
            prompts=np.repeat(np.arange(len(answers)), lengths),
            asked=asked,
        )

    def add(self, call: Call) -> None:
        """Run a call as deep as the deepest exit point."""
        executor = self._rig.executor
        wanted = [places for places in parts(call, self._answers, [1] * len(self._answers)) if places]
        h, depth = executor.embed(call.rows), 0
        for exit_, layer in enumerate(self._layers):
            if layer - 1 > depth:
                h, depth = executor.run_layers(h, call.rows, depth, layer - 1), layer - 1
            before = h
            h, depth = executor.run_layers(h, call.rows, depth, layer), layer
            for places in wanted:
                rows = np.array([row for _, _, row in places], dtype=np.int32)
                self._look(exit_, places, h.take(rows), before.take(rows))

    def _look(self, exit_: int, places: Places, hidden: Hidden, previous: Hidden) -> None:
        """One exit point's word on some tokens."""
        scored, layer = self.scored, self._layers[exit_]
        at = np.array([self._starts[n] + output for n, output, _ in places])
        summary = self._rig.executor.summarize(hidden, self._exits.heads[layer])
        for name, measure in MEASURES.items():
            scored.measures[name][at, exit_] = measure(summary)
        for name, predictors in self._predictors.items():
            scored.predictors[name][at, exit_] = _scores(predictors[layer], hidden, previous)
        scored.agreed[at, exit_] = self._agreed(places, summary.logits, layer)

    def _agreed(self, places: Places, logits: NDArray[np.float32], layer: int) -> NDArray[np.bool_]:
        """Whether drawing from these logits gives the tokens of the answers."""
        ids: Ids | None = self._rig.executor.head_ids(self._exits.heads[layer])
        if ids is not None:
            known = logits
            logits = np.full((len(known), self._rig.executor.config.vocab_size), -np.inf, np.float32)
            logits[:, ids] = known
        drawn = self._rig.sample_rows(logits, [self._rig.job(self._answers[n], output) for n, output, _ in places])
        # what can't be drawn is an error, which no token equals
        tokens = [int(self._answers[n].token_ids[output]) for n, output, _ in places]
        return np.array([one == other for one, other in zip(drawn, tokens, strict=True)], np.bool_)


def _scores(predictor: Predictor, hidden: Hidden, previous: Hidden) -> Scores:
    return predictor.scores(hidden.numpy(), previous.numpy() if predictor.wants_previous else None)
