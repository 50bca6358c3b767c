"""What a little model would have written at every token of the big one's own answers, and what that would be worth.

One prefill of each text through either model: cheap beside generating. It holds as long as what came before is the big
model's own text; what really comes of a policy is measured later. Shapes: tokens = all tokens of all answers in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.calibrate.answers import Answer, Rig, Tell
from offramp.calibrate.plain import Places, parts
from offramp.calibrate.prefill import calls
from offramp.collaborate.big_little_verifier import loss
from offramp.draft.drawing import confidence
from offramp.draft.own_model import OwnModel
from offramp.engine.engine import Engine
from offramp.model.executor import LayerExecutor
from offramp.sample.sampler import adjusted

NOTHING = -1
"""In the place of a token where none can be drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class PairTokens:
    """The little model's word on each token of the big one's answers."""

    sure: NDArray[np.float64]  # [tokens], its probability of the token that it would write
    agreed: NDArray[np.bool_]  # [tokens], that is the token of the answer
    losses: NDArray[np.float64]  # [tokens], of what it would write, under the big model
    prompts: NDArray[np.int64]  # [tokens], which answer


@dataclass(frozen=True, slots=True, eq=False)
class LittleParts:
    """A little model without requests, and an idle engine over it, which lends its pages."""

    executor: LayerExecutor
    own: OwnModel
    engine: Engine

    @property
    def num_layers(self) -> int:
        return self.executor.config.num_layers


def score_pair(rig: Rig, little: LittleParts, answers: Sequence[Answer], tell: Tell) -> PairTokens:
    """All tokens of answers that the big model gave alone. What the little model can't read it is not sure of."""
    scorer = _Scorer(rig, little, answers)
    scorer.ask_little(tell)
    scorer.ask_big(tell)
    return scorer.scored


class _Scorer:
    """Fills the arrays of one `PairTokens`."""

    def __init__(self, rig: Rig, little: LittleParts, answers: Sequence[Answer]) -> None:
        lengths = np.array([len(answer) for answer in answers])
        num_tokens = int(lengths.sum())
        self._rig = rig
        self._little = little
        self._answers = answers
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._tokens = np.full(num_tokens, NOTHING, np.int64)  # that the little model would write
        self.scored = PairTokens(
            sure=np.zeros(num_tokens),
            agreed=np.zeros(num_tokens, np.bool_),
            losses=np.full(num_tokens, np.inf),
            prompts=np.repeat(np.arange(len(answers)), lengths),
        )

    def ask_little(self, tell: Tell) -> None:
        """What it would write, and how sure it is."""
        own = self._little.own
        readable = [
            answer for answer in self._answers if len(answer.text_ids) <= own.max_context and own.knows(answer.text_ids)
        ]
        index_of = {id(answer): index for index, answer in enumerate(self._answers)}
        indices = [index_of[id(answer)] for answer in readable]
        for call in calls(self._little.engine, [answer.text_ids for answer in readable]):
            executor = self._little.executor
            h = executor.run_layers(executor.embed(call.rows), call.rows, 0, self._little.num_layers)
            for places in parts(call, readable, [0] * len(readable)):
                logits = own.logits(h.take(_rows(places)))
                jobs = [self._rig.job(readable[n], output) for n, output, _ in places]
                drawn = self._rig.sample_rows(logits, jobs)
                for (n, output, _), row, token in zip(places, logits, drawn, strict=True):
                    if isinstance(token, int):
                        at = self._at(indices[n], output)
                        self._tokens[at] = token
                        self.scored.sure[at] = confidence(row, token)
            tell(call.pieces[-1].text + 1, 2 * len(readable))

    def ask_big(self, tell: Tell) -> None:
        """What it makes of that."""
        answers, rig = self._answers, self._rig
        for call in calls(rig.engine, [answer.text_ids for answer in answers]):
            h = rig.executor.run_layers(rig.executor.embed(call.rows), call.rows, 0, rig.num_layers)
            for places in parts(call, answers, [0] * len(answers)):
                for (n, output, _), row in zip(places, rig.executor.logits(h.take(_rows(places))), strict=True):
                    at = self._at(n, output)
                    token = int(self._tokens[at])
                    if token != NOTHING:
                        self.scored.agreed[at] = token == answers[n].token_ids[output]
                        self.scored.losses[at] = loss(adjusted(row, rig.job(answers[n], output)), token)
            tell(len(answers) + call.pieces[-1].text + 1, 2 * len(answers))

    def _at(self, answer: int, output: int) -> int:
        return int(self._starts[answer]) + output


def _rows(places: Places) -> NDArray[np.int32]:
    return np.array([row for _, _, row in places], dtype=np.int32)
