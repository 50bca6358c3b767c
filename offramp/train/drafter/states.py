"""Hidden states at the taps, of answers and the prompts' ends: one exact prefill a text, mapped from disk.

rows = places looked at, of all texts in order; taps = depths; hidden = the model's width.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.errors import ResourceError
from offramp.model.executor import LayerExecutor
from offramp.train.exits.answers import Answer
from offramp.train.exits.work import WorkFolder
from offramp.train.prefill import CHUNK, chain_rows, halves, num_shared

STATES = "states.npy"
KEEP_EVERY = 64
"""Texts between two notes of how far capturing has come."""

States = NDArray[np.float16]


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A prompt's end and its answer: `tokens[i]` and the states after it, but for the last token, which never ran."""

    number: int  # of the prompt in its file
    tokens: Ids  # [places + 1]
    first: int  # the first place behind which the token is the answer's second: a drafter has nothing to go on before
    at: int  # where its rows begin

    @property
    def num_rows(self) -> int:
        return len(self.tokens) - 1

    @property
    def num_drafts(self) -> int:
        """Places where a token is drafted from states: its own target is the state one place further."""
        return max(0, self.num_rows - 1 - self.first)


def place_texts(answers: Sequence[Answer], context: int, most_rows: int) -> list[Text]:
    """As many of the answers as fit, in order; those that leave nothing to draft are passed over."""
    texts: list[Text] = []
    at = 0
    for answer in answers:
        start = max(0, len(answer.prompt) - context)
        tokens = np.array([*answer.prompt[start:], *answer.answer], np.int32)
        text = Text(answer.number, tokens, len(answer.prompt) - 1 - start, at)
        if text.num_drafts == 0:
            continue
        if at + text.num_rows > most_rows:
            break
        texts.append(text)
        at += text.num_rows
    return texts


def row_bytes(num_taps: int, hidden: int) -> int:
    """What one row takes on disk."""
    return 2 * num_taps * hidden


def capture(
    executor: LayerExecutor,
    answers: Sequence[Answer],
    texts: Sequence[Text],
    taps: Sequence[int],
    work: WorkFolder,
    tell: Callable[[int], None],
) -> States:
    """States [rows, taps, hidden] of all texts; goes on behind the last one that is done. No engine may run.

    `tell(texts done)` is called now and then.
    """
    by_number = {answer.number: answer for answer in answers}
    states = _open(work, (texts[-1].at + texts[-1].num_rows, len(taps), executor.config.hidden_size))
    before: Ids = np.zeros(0, np.int32)
    for index in range(int(work.state.get("captured", 0)), len(texts)):
        answer = by_number[texts[index].number]
        tokens = np.array([*answer.prompt, *answer.answer[:-1]], np.int32)
        _capture_one(executor, texts[index], tokens, num_shared(before, tokens), taps, states)
        before = tokens
        if (index + 1) % KEEP_EVERY == 0 or index + 1 == len(texts):
            states.flush()
            work.note(captured=index + 1)
            tell(index + 1)
    return states


def _open(work: WorkFolder, shape: tuple[int, ...]) -> np.memmap:
    path = work.path / STATES
    if "captured" in work.state:
        states = np.lib.format.open_memmap(path, mode="r+")
    else:
        states = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
        _reserve(path)
        work.note(captured=0)
    assert states.shape == shape, (states.shape, shape)
    return states


def _reserve(path: Path) -> None:
    """Have the disk give the whole file now: a mapped page without room would end the process."""
    size = path.stat().st_size
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink()
        raise ResourceError(
            f"no room for {size} bytes of hidden states in {path.parent}: {error.strerror}",
            hint="free disk space, lower --disk, or name a folder elsewhere with --work",
        ) from error


def _capture_one(
    executor: LayerExecutor, text: Text, tokens: Ids, shared: int, taps: Sequence[int], states: States
) -> None:
    """Of a text that lies at the end of `tokens`, the first of which have K/V already."""
    first = len(tokens) - text.num_rows
    for start in range(min(shared, first), len(tokens), CHUNK):
        stop = min(start + CHUNK, len(tokens))
        rows = chain_rows(tokens, start, stop)
        h, depth = executor.embed(rows), 0
        for tap, layer in enumerate(taps):
            h, depth = executor.run_layers(h, rows, depth, layer), layer
            begin = max(start, first)
            if begin < stop:
                place = slice(text.at + begin - first, text.at + stop - first)
                states[place, tap] = halves(h.numpy()[begin - start :], layer)
