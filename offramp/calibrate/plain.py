"""What plain decoding would draw at each place of an answer: same text, seed and settings, full depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from offramp.calibrate.answers import Answer, Rig, Tell, located
from offramp.calibrate.prefill import MOST_LOGITS, Call, calls
from offramp.core import Ids
from offramp.errors import OfframpError
from offramp.sample.sampler import RowJob

Places = list[tuple[int, int, int]]
"""(answer, token of it, row of a call)."""


def plain_tokens(rig: Rig, answers: Sequence[Answer], firsts: Sequence[int], tell: Tell) -> list[Ids]:
    """For each answer the tokens that plain decoding draws in place of its own from `firsts` on.

    One exact prefill a text, whatever K/V the answer itself was written with. Raises NumericError naming the line.
    """
    drawn = [np.zeros(len(answer) - first, np.int32) for answer, first in zip(answers, firsts, strict=True)]
    for call in calls(rig.engine, [answer.text_ids for answer in answers]):
        h = rig.executor.run_layers(rig.executor.embed(call.rows), call.rows, 0, rig.num_layers)
        for places in parts(call, answers, firsts):
            logits = rig.executor.logits(h.take(np.array([row for _, _, row in places], dtype=np.int32)))
            jobs: list[RowJob] = [rig.job(answers[n], output) for n, output, _ in places]
            for (n, output, _), token in zip(places, rig.sample_rows(logits, jobs), strict=True):
                if isinstance(token, OfframpError):
                    raise located(token, answers[n].prompt)
                drawn[n][output - firsts[n]] = token
        tell(call.pieces[-1].text + 1, len(answers))
    return drawn


def parts(call: Call, answers: Sequence[Answer], firsts: Sequence[int]) -> Iterator[Places]:
    """Where a call yields tokens of answers from `firsts` on, as many at once as logits may be held of."""
    places: Places = []
    for index, piece in enumerate(call.pieces):
        answer, first = answers[piece.text], firsts[piece.text]
        rows = call.rows_of(index, answer.row(first)).tolist()
        begin = max(piece.start, answer.row(first)) - answer.row(0)
        places += [(piece.text, begin + n, row) for n, row in enumerate(rows)]
    for start in range(0, len(places), MOST_LOGITS):
        yield places[start : start + MOST_LOGITS]
