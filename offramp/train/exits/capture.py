"""Hidden states at every exit point and the final distribution, for each token of the answers; in mapped arrays.

tokens = those that an exit may yield, of all answers in order; best = the likeliest ids kept of each distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids, num_shared_ids
from offramp.model.executor import LayerExecutor
from offramp.train.exits.answers import Answer
from offramp.train.exits.work import WorkFolder
from offramp.train.prefill import CHUNK, chain_rows, halves

BEST = 64


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of each token."""

    hidden: dict[int, NDArray[np.float16]]  # by exit point, [tokens, hidden]
    best_ids: Ids  # [tokens, best], likeliest first
    best_logits: NDArray[np.float32]  # [tokens, best]
    log_sum_exp: NDArray[np.float32]  # [tokens], over the whole vocabulary
    numbers: Ids  # [tokens], the prompt that each belongs to


def capture(
    executor: LayerExecutor,
    answers: Sequence[Answer],
    layers: Sequence[int],
    work: WorkFolder,
    tell: Callable[[int], None],
) -> Captured:
    """One exact prefill a sequence, range by range; goes on behind the last answer that is done. No engine may run.

    `tell(answers done)` is called now and then.
    """
    num_tokens = sum(answer.num_rows for answer in answers)
    arrays = _open_arrays(executor, num_tokens, layers, work)
    done = int(work.state.get("captured", 0))
    at = sum(answer.num_rows for answer in answers[:done])
    before: Ids = np.zeros(0, np.int32)
    for index in range(done, len(answers)):
        tokens = np.array([*answers[index].prompt, *answers[index].answer[:-1]], np.int32)
        _capture_one(executor, answers[index], tokens, num_shared_ids(before, tokens), layers, arrays, at)
        at += answers[index].num_rows
        before = tokens
        if (index + 1) % 64 == 0 or index + 1 == len(answers):
            for array in (*arrays.hidden.values(), arrays.best_ids, arrays.best_logits, arrays.log_sum_exp):
                assert isinstance(array, np.memmap)
                array.flush()
            work.note(captured=index + 1)
            tell(index + 1)
    return arrays


def _open_arrays(executor: LayerExecutor, num_tokens: int, layers: Sequence[int], work: WorkFolder) -> Captured:
    width = executor.config.hidden_size
    best = min(BEST, executor.config.vocab_size)

    def array(name: str, dtype: type, *shape: int) -> np.memmap:
        path = work.path / f"{name}.npy"
        if "captured" in work.state:
            return np.lib.format.open_memmap(path, mode="r+")
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(num_tokens, *shape))

    captured = Captured(
        {layer: array(f"hidden-{layer}", np.float16, width) for layer in layers},
        array("best-ids", np.int32, best),
        array("best-logits", np.float32, best),
        array("log-sum-exp", np.float32),
        array("numbers", np.int32),
    )
    if "captured" not in work.state:
        work.note(captured=0)
    assert len(captured.best_ids) == num_tokens
    return captured


def _capture_one(
    executor: LayerExecutor,
    answer: Answer,
    tokens: Ids,
    num_shared: int,
    layers: Sequence[int],
    arrays: Captured,
    at: int,
) -> None:
    """Of one sequence, whose first tokens have K/V already; its arrays begin at `at`."""
    first = len(answer.prompt)  # the row that yields the answer's second token
    for start in range(min(num_shared, first), len(tokens), CHUNK):
        stop = min(start + CHUNK, len(tokens))
        rows = chain_rows(tokens, start, stop)
        wanted = np.arange(max(start, first), stop, dtype=np.int32)
        place = slice(at + int(wanted[0]) - first, at + int(wanted[-1]) + 1 - first) if len(wanted) else None
        h, depth = executor.embed(rows), 0
        for layer in (*layers, executor.config.num_layers):
            h, depth = executor.run_layers(h, rows, depth, layer), layer
            if place is not None and layer in arrays.hidden:
                arrays.hidden[layer][place] = halves(h.numpy()[wanted - start], layer)
        if place is not None:
            top = executor.top(h.take(wanted - start), arrays.best_ids.shape[1])
            arrays.best_ids[place], arrays.best_logits[place] = top.ids, top.logits
            arrays.log_sum_exp[place] = top.log_sum_exp
            arrays.numbers[place] = answer.number
