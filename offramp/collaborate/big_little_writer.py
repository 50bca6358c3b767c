"""The little model writes behind texts, as far as it is sure of itself.

What it writes behind a text is a function of the text and the request: who else is asked, chunks of prompts and a lack
of pages change when it runs, never what it says. So all asked are served, in turns where its pages don't hold all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, SequenceKey
from offramp.draft.drawing import DraftChain, Drawn, SampleRows, draw
from offramp.draft.own_cache import OwnSequence
from offramp.draft.own_model import CATCH_UP_ROWS, OwnModel
from offramp.errors import NumericError


@dataclass(slots=True, eq=False)
class Writing(DraftChain):
    """One text as it grows; the bounds of its ask say how far. Below `fallback` the little model is not sure enough."""

    fallback: float = 0.0

    @property
    def text(self) -> Ids:
        return self.ask.token_ids

    @property
    def num_slots(self) -> int:
        """Most that have K/V: the last token that it writes runs no more."""
        return len(self.text) + max(0, self.room - 1)


class LittleWriter:
    """Over a model that it may share with a drafter."""

    def __init__(self, model: OwnModel, sample_rows: SampleRows) -> None:
        self._model = model
        self._sample_rows = sample_rows

    def room(self, text: Ids) -> int:
        """Tokens that it can write behind a text: none behind one that it can't read, or that is too long for it."""
        return max(0, self._model.max_context - len(text) + 1) if self._model.knows(text) else 0

    def write(self, writings: Items[Writing]) -> None:
        """Let each of them grow. Raises NumericError for damaged logits, and what an executor raises."""
        for group in self._groups(writings):
            self._write(group)

    def read(self, texts: Items[tuple[SequenceKey, Ids]]) -> None:
        """Run what is new of these texts, where pages are at hand: what is behind them is then said sooner."""
        busy = {key for key, _ in texts}
        for key, text in texts:
            own = self._model.cache.get(key)
            kept = own.trim_to(text)
            if self.room(text) and self._model.cache.grow(own, len(text), busy):
                for part in _parts(text[kept:]):
                    self._model.run([own], [part])

    def drop(self, key: SequenceKey) -> None:
        self._model.cache.drop(key)

    def clear(self) -> None:
        self._model.cache.clear()

    def _groups(self, writings: Items[Writing]) -> Iterator[list[tuple[Writing, OwnSequence]]]:
        """Those that pages hold at once; a group's are held until the next is asked for."""
        group: list[tuple[Writing, OwnSequence]] = []
        busy: set[SequenceKey] = set()
        for writing in writings:
            key = writing.ask.key
            own = self._model.cache.get(key)
            own.trim_to(writing.text)
            busy.add(key)
            if not self._model.cache.grow(own, writing.num_slots, busy):
                yield group
                group, busy = [], {key}
                held = self._model.cache.grow(own, writing.num_slots, busy)
                assert held, "one text fits in any case"
            group.append((writing, own))
        if group:
            yield group

    def _write(self, group: list[tuple[Writing, OwnSequence]]) -> None:
        logits = self._catch_up(group)
        going = group
        while True:
            surer = self._extend([writing for writing, _ in going], logits)
            going = [pair for pair in going if pair[0] in surer and pair[0].room > 0]
            if not going:
                return
            last = [np.array(writing.token_ids[-1:], dtype=np.int32) for writing, _ in going]
            logits = self._model.logits(self._model.run([own for _, own in going], last))

    def _catch_up(self, group: list[tuple[Writing, OwnSequence]]) -> NDArray[np.float32]:
        """Run what is new of the texts; logits [group, vocab] behind their last tokens."""
        rest = [writing.text[len(own.tokens) :] for writing, own in group]
        rows: list[NDArray[np.float32] | None] = [None] * len(group)
        while any(map(len, rest)):
            budget = CATCH_UP_ROWS
            now: list[int] = []
            parts: list[Ids] = []
            for index, some in enumerate(rest):
                part = some[:budget]
                if len(part):
                    now.append(index)
                    parts.append(part)
                    rest[index] = some[len(part) :]
                    budget -= len(part)
            hidden = self._model.run([group[index][1] for index in now], parts)
            done = [place for place, index in enumerate(now) if not len(rest[index])]
            if done:
                found = self._model.logits(hidden.take(np.array(done, dtype=np.int32)))
                for place, row in zip(done, found, strict=True):
                    rows[now[place]] = row
        return np.stack([row for row in rows if row is not None])

    def _extend(self, writings: Items[Writing], logits: NDArray[np.float32]) -> list[Writing]:
        """A token more for each that is sure of it; returns those."""
        surer: list[Writing] = []
        for writing, drawn in zip(writings, draw(self._sample_rows, logits, writings), strict=True):
            if isinstance(drawn, NumericError):
                raise drawn
            if not isinstance(drawn, Drawn):
                continue  # a request that allows no token there: the big model says so
            if drawn.sure >= writing.fallback:
                writing.append(drawn, drawn.sure)
                surer.append(writing)
        return surer


def _parts(text: Ids) -> Iterable[Ids]:
    return (text[start : start + CATCH_UP_ROWS] for start in range(0, len(text), CATCH_UP_ROWS))
