"""The nouns that every part of the engine shares, and nothing that computes.

A request asks for one or more sequences (choices); a sequence is behind by some tokens at some layers; a step packs rows,
runs them, judges drafts and commits tokens. Shapes: rows = rows of one executor call, seqs = sequences it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from offramp.errors import InvalidRequestError

PAGE_SIZE = 32
"""Positions in a page: the unit of K/V memory, of the attention walk and of prefix hashing."""

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A ragged batch: one row is one token of one sequence. All arrays int32 and C-contiguous.

    Row r belongs to sequence `sequence[r]`, whose pages are `page_ids[page_starts[s]:page_starts[s + 1]]`. Slot n of a
    sequence is offset n % 32 of its page n // 32. The row writes slot `slots[r]`; it sees logical positions
    0..positions[r]: those below `prefix_lens[r]` in the slot of the same number, those from there to positions[r] - 1 in
    `ancestor_slots[ancestor_starts[r]:ancestor_starts[r + 1]]` in depth order, and itself. A plain (chain) row has
    slot == position == prefix_len and no ancestors.
    """

    tokens: Ids  # [rows]
    sequence: Ids  # [rows], index into page_starts
    positions: Ids  # [rows], logical position (rope, attention order)
    slots: Ids  # [rows]
    prefix_lens: Ids  # [rows]
    ancestor_slots: Ids  # [total ancestors]
    ancestor_starts: Ids  # [rows + 1]
    page_ids: Ids  # [total pages]
    page_starts: Ids  # [seqs + 1]

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, indices: Ids) -> Rows:
        """The chosen rows in that order; pages are shared, not copied."""
        counts = np.diff(self.ancestor_starts)[indices]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        picked = [self.ancestor_slots[self.ancestor_starts[i] : self.ancestor_starts[i + 1]] for i in indices]
        ancestors = np.concatenate(picked) if picked else self.ancestor_slots[:0]
        return Rows(
            tokens=self.tokens[indices],
            sequence=self.sequence[indices],
            positions=self.positions[indices],
            slots=self.slots[indices],
            prefix_lens=self.prefix_lens[indices],
            ancestor_slots=np.ascontiguousarray(ancestors, dtype=np.int32),
            ancestor_starts=starts,
            page_ids=self.page_ids,
            page_starts=self.page_starts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to turn logits into tokens and when to stop. Names and meaning follow vLLM.

    Impossible values raise InvalidRequestError at construction, naming the field. `temperature=0` is greedy; `top_k` 0 or
    -1, `top_p=1` and `min_p=0` are off; `max_tokens=None` means up to the context's end; `seed=None` means a fresh one,
    which the output names. `logprobs=k` returns the chosen token's and the k best raw log-probabilities.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int | None = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        object.__setattr__(self, "stop", tuple(stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        check_sampling(self)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


def check_sampling(params: SamplingParams) -> None:
    """Refuse impossible sampling values. Ranges are those of vLLM; NaN and infinities never pass."""
    _check_range("temperature", params.temperature, 0.0, MAX_TEMPERATURE)
    _check_range("top_p", params.top_p, 0.0, 1.0, open_low=True)
    _check_range("min_p", params.min_p, 0.0, 1.0)
    _check_range("repetition_penalty", params.repetition_penalty, 0.0, MAX_TEMPERATURE, open_low=True)
    _check_range("presence_penalty", params.presence_penalty, -2.0, 2.0)
    _check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0)
    _check_int("top_k", params.top_k, -1)
    _check_int("max_tokens", params.max_tokens, 1, optional=True)
    _check_int("min_tokens", params.min_tokens, 0)
    _check_int("n", params.n, 1, MAX_CHOICES)
    _check_int("seed", params.seed, 0, 2**64 - 1, optional=True)
    _check_int("logprobs", params.logprobs, 0, MAX_LOGPROBS, optional=True)
    _check_int("prompt_logprobs", params.prompt_logprobs, 0, MAX_LOGPROBS, optional=True)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise _invalid("min_tokens", params.min_tokens, f"at most max_tokens ({params.max_tokens})")
    for text in params.stop:
        if not isinstance(text, str) or not text:
            raise _invalid("stop", text, "non-empty strings")
    for token in params.stop_token_ids:
        _check_int("stop_token_ids", token, 0)
    for token, bias in params.logit_bias.items():
        _check_int("logit_bias", token, 0)
        _check_range("logit_bias", bias, -100.0, 100.0)


MAX_TEMPERATURE = 1e6
MAX_CHOICES = 128
MAX_LOGPROBS = 128


def _check_range(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and low <= value <= high and not (open_low and value == low)  # type: ignore[operator]
    if not inside:
        raise _invalid(name, value, f"a number in {'(' if open_low else '['}{low:g}, {high:g}]")


def _check_int(name: str, value: object, low: int, high: int | None = None, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    good = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    if not good:
        raise _invalid(name, value, f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]")


def _invalid(name: str, value: object, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}={value!r} is impossible", hint=f"{name} takes {wanted}", param=name)
