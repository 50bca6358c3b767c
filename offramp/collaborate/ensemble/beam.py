"""A small beam search over a model with K/V of its own, whose scores a guide may change.

beams = hypotheses that go on; vocab = tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.cache.sequence import pages_for
from offramp.collaborate.ensemble.combine import log_softmax
from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.errors import ResourceError
from offramp.model.executor import Hidden, LayerExecutor

CHUNK = 256
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """Output tokens, an end token included, their log-probability, and that with what the guide took off it."""

    token_ids: tuple[int, ...] = ()
    logprob: float = 0.0
    score: float = 0.0
    ended: bool = False

    @property
    def mean_score(self) -> float:
        """A token, so that short ones are not preferred."""
        return self.score / max(1, len(self.token_ids))


class Stepper(Protocol):
    """A model at several places at once."""

    def begin(self, prompt: Ids) -> Scores:
        """Log-probabilities [vocab] behind the prompt."""
        ...

    def step(self, parents: Sequence[int], token_ids: Sequence[int]) -> Scores:
        """[beams, vocab] behind each parent of the step before, longer by a token."""
        ...


class Guide(Protocol):
    """Takes something off the scores of what it does not want."""

    def penalties(self, token_ids: tuple[int, ...], vocab_size: int) -> Scores:
        """[vocab]: what each next token would have lost in all, the hypothesis' own loss included."""
        ...


class NoGuide:
    """Nothing is lost."""

    def penalties(self, token_ids: tuple[int, ...], vocab_size: int) -> Scores:
        return np.zeros(vocab_size)


def beam_search(
    stepper: Stepper, prompt: Ids, *, width: int, max_tokens: int, end_ids: frozenset[int], guide: Guide
) -> list[Hypothesis]:
    """At most `width` hypotheses, best mean score first; those that reached no end in time are cut there."""
    beams = [Hypothesis()]
    rows = stepper.begin(prompt)[None]
    ended: list[Hypothesis] = []
    for length in range(1, max_tokens + 1):
        grown = _grown(beams, rows, width, end_ids, guide)
        ended += [hypothesis for _, hypothesis in grown if hypothesis.ended]
        going = [(parent, hypothesis) for parent, hypothesis in grown if not hypothesis.ended]
        beams = [hypothesis for _, hypothesis in going]
        if not beams or length == max_tokens or _settled(ended, beams, width):
            break
        rows = stepper.step([parent for parent, _ in going], [each.token_ids[-1] for each in beams])
    found = sorted([*ended, *beams], key=lambda each: (-each.mean_score, each.token_ids))
    return found[:width]


def _grown(
    beams: Sequence[Hypothesis], rows: Scores, width: int, end_ids: frozenset[int], guide: Guide
) -> list[tuple[int, Hypothesis]]:
    """The best continuations of all beams, and whose; equal ones by rising beam and token."""
    penalties = np.stack([guide.penalties(beam.token_ids, rows.shape[1]) for beam in beams])
    logprobs = rows + np.array([beam.logprob for beam in beams])[:, None]
    scores = logprobs - penalties
    best = np.argsort(-scores, axis=None, kind="stable")[:width]
    found = []
    for place in best.tolist():
        parent, token = divmod(place, rows.shape[1])
        if scores[parent, token] == -np.inf:
            continue
        hypothesis = Hypothesis(
            token_ids=(*beams[parent].token_ids, token),
            logprob=float(logprobs[parent, token]),
            score=float(scores[parent, token]),
            ended=token in end_ids,
        )
        found.append((parent, hypothesis))
    return found


def _settled(ended: Sequence[Hypothesis], beams: Sequence[Hypothesis], width: int) -> bool:
    """There are enough ends, each better by its mean than any beam is now."""
    if len(ended) < width:
        return False
    worst = sorted((each.mean_score for each in ended), reverse=True)[width - 1]
    return worst >= max(each.mean_score for each in beams)


class ExecutorStepper:
    """Over an executor that nobody else uses: each beam has pages of its own, a step writes those of the other half."""

    def __init__(self, executor: LayerExecutor, width: int, vocab_size: int) -> None:
        """`vocab_size` without rows that no token has."""
        self._executor = executor
        self._width = width
        self._vocab_size = vocab_size
        self._pages_each = executor.num_pages // (2 * width)
        self._half = 0
        self._length = 0  # tokens that have K/V in each beam

    def begin(self, prompt: Ids) -> Scores:
        """Raises ResourceError where the prompt has no room."""
        self._half, self._length = 0, len(prompt)
        pages = self._pages(0, 0, len(prompt))
        for start in range(0, len(prompt), CHUNK):
            positions = np.arange(start, min(start + CHUNK, len(prompt)), dtype=np.int32)
            rows = Rows.plain(prompt[positions], np.zeros(len(positions), np.int32), positions, [pages])
            h = self._run(rows)
        last: Scores = self._logprobs(h.take(np.array([len(h) - 1], dtype=np.int32)))[0]
        return last

    def step(self, parents: Sequence[int], token_ids: Sequence[int]) -> Scores:
        assert len(parents) == len(token_ids) <= self._width
        position = self._length
        pages = [self._pages(1 - self._half, beam, position + 1) for beam in range(len(parents))]
        for beam, parent in enumerate(parents):
            source = self._pages(self._half, parent, position)
            self._executor.copy_slots(_slots(source, position), _slots(pages[beam], position))
        self._half, self._length = 1 - self._half, position + 1
        rows = Rows.plain(
            np.array(token_ids, dtype=np.int32),
            np.arange(len(parents), dtype=np.int32),
            np.full(len(parents), position, np.int32),
            pages,
        )
        return self._logprobs(self._run(rows))

    def _run(self, rows: Rows) -> Hidden:
        return self._executor.run_layers(self._executor.embed(rows), rows, 0, self._executor.config.num_layers)

    def _logprobs(self, h: Hidden) -> Scores:
        return np.stack([log_softmax(row) for row in self._executor.logits(h)[:, : self._vocab_size]])

    def _pages(self, half: int, beam: int, length: int) -> Ids:
        needed = pages_for(length)
        if needed > self._pages_each:
            most = self._pages_each * PAGE_SIZE
            hint = "load the model with more K/V memory, or search with fewer beams"
            raise ResourceError(f"{length} tokens for each of {self._width} beams: there is room for {most}", hint=hint)
        first = (half * self._width + beam) * self._pages_each
        return np.arange(first, first + needed, dtype=np.int32)


def _slots(pages: Ids, length: int) -> Ids:
    """Physical slots of the first tokens."""
    places = np.arange(length, dtype=np.int32)
    slots: Ids = (pages[places // PAGE_SIZE] * PAGE_SIZE + places % PAGE_SIZE).astype(np.int32)
    return slots
