"""Exit and drafter heads: what turns hidden states into logits besides the model's own head.

rank = width of an adapter's bottleneck, ids = tokens that a reduced head knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.core import Ids
from offramp.errors import CorruptModelError
from offramp.model.config import ModelConfig
from offramp.model.tensors import BLOCK, F32Matrix, Matrix, Q4Matrix, Q8Matrix, Vector

HEAD = "head"  # where a problem lies, unless a file is named
HINT = "the head is damaged, or was made for another model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadWeights:
    """Logits are the rows of an output matrix times `rms_norm(h', norm)`, `h' = h + up @ silu(down @ n)`,
    `n = rms_norm(h, input_norm)`; without an adapter (`input_norm`, `down` and `up` all None) `h' = h`.

    With every field None it is the model's own head, bit for bit. `vocab_ids` are copied, the rest is referenced.
    """

    norm: Vector | None = None  # [hidden]; None: the model's final norm
    input_norm: Vector | None = None  # [hidden]
    down: Matrix | None = None  # [rank, hidden]
    up: Matrix | None = None  # [hidden, rank]
    vocab_ids: Ids | None = None  # ascending: the tokens that the head knows; None: all
    matrix: Matrix | None = None  # [ids or vocab, hidden]; None: those rows of the model's own LM head or embedding

    def __post_init__(self) -> None:
        if self.vocab_ids is not None:
            ids = self.vocab_ids.copy()
            ids.flags.writeable = False
            object.__setattr__(self, "vocab_ids", ids)


def check_head(weights: HeadWeights, config: ModelConfig) -> None:
    """Raise CorruptModelError, naming the part and the sizes, for what no executor of this model can run."""
    hidden = config.hidden_size
    for name, vector in (("norm", weights.norm), ("input_norm", weights.input_norm)):
        if vector is not None:
            _check_vector(name, vector, hidden)
    _check_adapter(weights, hidden)
    if weights.vocab_ids is not None:
        check_vocab_ids(weights.vocab_ids, config.vocab_size)
    if weights.matrix is not None:
        num_ids = config.vocab_size if weights.vocab_ids is None else len(weights.vocab_ids)
        check_matrix("matrix", weights.matrix, (num_ids, hidden))


def check_vocab_ids(ids: Ids, vocab_size: int, where: str = HEAD) -> None:
    """Raise CorruptModelError unless the ids ascend, each within the vocabulary, one at least."""
    assert ids.dtype == np.int32, ids.dtype
    if ids.ndim != 1 or len(ids) == 0:
        raise _error(where, f"vocab_ids has shape {list(ids.shape)}", "a head needs a list of at least one token")
    if ids.min() < 0 or ids.max() >= vocab_size:
        stray = next(token for token in ids.tolist() if not 0 <= token < vocab_size)
        raise _error(where, f"vocab_ids holds {stray}, outside the vocabulary of {vocab_size}")
    descents = np.flatnonzero(np.diff(ids) <= 0)
    if len(descents):
        at = int(descents[0])
        raise _error(where, f"vocab_ids must ascend, but {ids[at + 1]} follows {ids[at]} at {at + 1}")


def check_matrix(name: str, matrix: Matrix, shape: tuple[int, int], where: str = HEAD) -> None:
    """Raise CorruptModelError unless the matrix has that shape, arrays that agree with it, and finite values."""
    if matrix.shape != shape:
        raise _error(where, f"{name} has shape {list(matrix.shape)}, the model calls for {list(shape)}")
    if isinstance(matrix, F32Matrix):
        _check_finite(name, matrix.values, where)
        return
    blocks = -(-shape[1] // BLOCK)
    codes = matrix.quants if isinstance(matrix, Q8Matrix) else matrix.codes
    parts: list[NDArray[np.float16]] = [matrix.scales]
    if isinstance(matrix, Q4Matrix):
        parts.append(matrix.minimums)
    if codes.shape != (shape[0], blocks * BLOCK) or any(part.shape != (shape[0], blocks) for part in parts):
        raise _error(where, f"{name}: its blocks don't make up a matrix of shape {list(shape)}")
    for part in parts:
        _check_finite(name, part, where)
    lowest, highest = (-127, 127) if isinstance(matrix, Q8Matrix) else (0, 15)
    if codes.min() < lowest or codes.max() > highest:
        raise _error(where, f"{name} uses codes outside [{lowest}, {highest}]")


def columns_of(head_ids: Ids | None, vocab_ids: Ids) -> Ids:
    """Where a head has the logits of these tokens, which it must know."""
    if head_ids is None:
        return vocab_ids
    columns = np.searchsorted(head_ids, vocab_ids).astype(np.int32)
    known = columns < len(head_ids)
    known[known] = head_ids[columns[known]] == vocab_ids[known]
    assert known.all(), f"the head does not know the tokens {vocab_ids[~known].tolist()}"
    return columns


def _check_adapter(weights: HeadWeights, hidden: int) -> None:
    parts = {"input_norm": weights.input_norm, "down": weights.down, "up": weights.up}
    missing = [name for name, part in parts.items() if part is None]
    if len(missing) == len(parts):
        return
    if missing:
        raise _error(HEAD, f"the adapter lacks {' and '.join(missing)}", "an adapter is input_norm, down and up")
    assert weights.down is not None
    assert weights.up is not None
    rank = weights.down.shape[0]
    if rank == 0:
        raise _error(HEAD, "down has shape [0, ...]: an adapter of rank 0", "leave the adapter out")
    check_matrix("down", weights.down, (rank, hidden))
    check_matrix("up", weights.up, (hidden, rank))


def _check_vector(name: str, vector: Vector, size: int) -> None:
    assert vector.dtype == np.float32, vector.dtype
    if vector.shape != (size,):
        raise _error(HEAD, f"{name} has shape {list(vector.shape)}, the model calls for {[size]}")
    _check_finite(name, vector, HEAD)


def _check_finite(name: str, values: NDArray[np.floating], where: str) -> None:
    if not np.isfinite(values).all():
        raise _error(where, f"{name} holds NaN or infinite values")


def _error(where: str, problem: str, hint: str = HINT) -> CorruptModelError:
    return CorruptModelError(f"{where}: {problem}", hint=hint)
