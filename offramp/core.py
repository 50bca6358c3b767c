"""The nouns that every part of the engine shares, the rules that keep each of them well formed, and the protocols.

Nothing here decides, samples or touches a model.

A request asks for one or more sequences (choices); a sequence is behind by some tokens at some layers; a step packs
rows, runs them, judges drafts and commits tokens. Shapes: rows = rows of one executor call, seqs = sequences it
touches.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.errors import OfframpError
from offramp.params import SamplingParams as SamplingParams

PAGE_SIZE = 32
"""Positions in a page: the unit of K/V memory, of the attention walk and of prefix hashing."""

Ids = NDArray[np.int32]


class IdBuffer:
    """A growing list of int32 ids, readable as an array without a copy."""

    __slots__ = ("_data", "_length")

    def __init__(self, ids: Iterable[int] | Ids = ()) -> None:
        self._data = np.array(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int32)
        self._length = len(self._data)

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> Ids:
        """The ids so far, read-only for callers. A view taken before an append may miss later ids, never changes."""
        return self._data[: self._length]

    def append(self, value: int) -> None:
        self._reserve(1)
        self._data[self._length] = value
        self._length += 1

    def extend(self, values: abc.Sequence[int]) -> None:
        self._reserve(len(values))
        self._data[self._length : self._length + len(values)] = values
        self._length += len(values)

    def pop(self) -> int:
        assert self._length > 0
        self._length -= 1
        return int(self._data[self._length])

    def _reserve(self, count: int) -> None:
        if self._length + count > len(self._data):
            grown = np.empty(max(32, 2 * self._length, self._length + count), dtype=np.int32)
            grown[: self._length] = self._data[: self._length]
            self._data = grown


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A ragged batch: one row is one token of one sequence. All arrays int32 and C-contiguous.

    Row r belongs to sequence `sequence[r]`, whose pages are `page_ids[page_starts[s]:page_starts[s + 1]]`. Slot n of a
    sequence is offset n % 32 of its page n // 32. The row writes slot `slots[r]`; it sees logical positions
    0..positions[r]: those below `prefix_lens[r]` in the slot of the same number, those from there to positions[r] - 1
    in `ancestor_slots[ancestor_starts[r]:ancestor_starts[r + 1]]` in depth order, and itself. A plain (chain) row has
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


FinishReason = Literal["stop", "length", "abort", "error"]

SequenceKey = tuple[str, int]
"""(request id, choice): names a sequence everywhere in the engine."""

TextStop = Callable[[int], bool]
"""Fed each committed token of one sequence in order; True when that token completed a stop string. May be fed on after
a True (min_tokens not reached yet). End tokens that finish the sequence are not fed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the caller wants, with ids instead of text and the seed resolved. A smaller `priority` is served first."""

    request_id: str
    prompt_token_ids: abc.Sequence[int] | Ids
    params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    seed: int
    priority: int = 0
    text_stop: Callable[[int], TextStop] | None = None  # makes the stop-string watcher of one choice
    cache_salt: str = ""  # requests share cached K/V only under the same salt


class Sequence:
    """One choice of a request: its tokens (prompt, then output) and how it ended. Only commit appends to it."""

    __slots__ = ("_prompt_len", "arrival", "choice", "finish_reason", "limit", "request", "text_stop", "tokens")

    def __init__(self, request: Request, choice: int, *, arrival: int, max_context: int) -> None:
        params = request.params
        self.request = request
        self.choice = choice
        self.arrival = arrival
        self.tokens = IdBuffer(request.prompt_token_ids)
        self._prompt_len = len(self.tokens)
        wanted = max_context if params.max_tokens is None else self._prompt_len + params.max_tokens
        self.limit = min(max_context, wanted)  # tokens at which the sequence ends with "length"
        self.text_stop = request.text_stop(choice) if request.text_stop and params.stop else None
        self.finish_reason: FinishReason | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> SequenceKey:
        return self.request.request_id, self.choice

    @property
    def rank(self) -> tuple[int, int, int]:
        """Order of service: smaller is served first, larger is preempted first."""
        return self.request.priority, self.arrival, self.choice

    @property
    def prompt_len(self) -> int:
        return self._prompt_len

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self._prompt_len

    @property
    def prompt_ids(self) -> Ids:
        return self.tokens.view[: self._prompt_len]

    @property
    def output_ids(self) -> Ids:
        return self.tokens.view[self._prompt_len :]


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Draft tokens after a sequence's last token. Node i follows node `parents[i]` < i, or that last token when -1."""

    token_ids: tuple[int, ...] = ()  # [nodes]
    parents: tuple[int, ...] = ()  # [nodes]

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.parents)
        assert all(-1 <= parent < node for node, parent in enumerate(self.parents)), self.parents

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @staticmethod
    def chain(token_ids: abc.Sequence[int]) -> TokenTree:
        return TokenTree(tuple(token_ids), tuple(range(-1, len(token_ids) - 1)))

    def paths(self) -> list[tuple[int, ...]]:
        """For each node the nodes from the root's child down to and including it."""
        paths: list[tuple[int, ...]] = []
        for node, parent in enumerate(self.parents):
            paths.append((*paths[parent], node) if parent >= 0 else (node,))
        return paths

    def without_ids_from(self, vocab_size: int) -> TokenTree:
        """The tree without tokens that the model does not know, nor anything behind them."""
        if all(0 <= token < vocab_size for token in self.token_ids):
            return self
        known = [all(0 <= self.token_ids[above] < vocab_size for above in path) for path in self.paths()]
        return self._keep([node for node, good in enumerate(known) if good])

    def clamp(self, *, max_nodes: int, max_depth: int) -> TokenTree:
        """The first `max_nodes` nodes among those at most `max_depth` deep (a child of the last token has depth 1)."""
        if len(self) <= max_nodes and len(self) <= max_depth:
            return self
        kept = [node for node, path in enumerate(self.paths()) if len(path) <= max_depth][: max(0, max_nodes)]
        return self._keep(kept)

    def _keep(self, nodes: list[int]) -> TokenTree:
        """These nodes, in order, with all their ancestors among them."""
        renamed = {node: index for index, node in enumerate(nodes)} | {-1: -1}
        parents = tuple(renamed[self.parents[node]] for node in nodes)
        return TokenTree(tuple(self.token_ids[node] for node in nodes), parents)


NO_DRAFT = TokenTree()


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """A place where a draft may go: after the last of `token_ids`, at most this many nodes and this deep."""

    key: SequenceKey
    prompt_len: int
    token_ids: Ids  # prompt and output so far
    max_nodes: int
    max_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What plain decoding yields at one place: accepted draft tokens, then the recovered or bonus token.

    `rows[i]` is the row of logits (counted from the place's first) that decided `token_ids[i]`. With an `error` the
    tokens before it are still right, and nothing follows.
    """

    token_ids: tuple[int, ...]
    accepted: tuple[int, ...]  # draft nodes, root to leaf; token_ids[:len(accepted)] are theirs
    rows: tuple[int, ...]
    error: OfframpError | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The chosen token's raw log-probability and 1-based rank, and the best tokens in falling order."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]  # (token id, logprob); equal ones by rising id


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """What one step brought for one sequence: tokens, its end, or both.

    `logprobs` has one entry a token when asked for. `prompt_logprobs` comes once, with choice 0's first token: one
    entry a prompt token, None for the first. `num_cached_tokens` counts prompt tokens found in the prefix cache at the
    first admission. `text_stopped` tells a stop string from a stop or end token.
    """

    request_id: str
    choice: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    text_stopped: bool = False
    error: OfframpError | None = None
    num_cached_tokens: int = 0


class Drafter(Protocol):
    """Proposes tokens cheaply. Whatever it proposes, the output stays that of plain decoding."""

    @property
    def max_nodes(self) -> int:
        """Most nodes it ever proposes for one sequence; with 0 it is never called."""
        ...

    def propose(self, asks: abc.Sequence[DraftAsk]) -> abc.Sequence[TokenTree]:
        """One tree an ask, within its bounds (the engine clamps)."""
        ...

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Learn what became of a proposal; called once for each non-empty tree that ran."""
        ...

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended: drop all state kept for it."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sequence continues: its draft and the logits rows `row` (after the last token), `row + 1 + node`."""

    sequence: Sequence
    tree: TokenTree
    row: int


class Verifier(Protocol):
    """Decides which drafts stand."""

    def judge(self, places: abc.Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        """One verdict a place; logits [rows, vocab]. Pure: changes neither."""
        ...


class CostModel(Protocol):
    """What executor calls cost on this machine, in seconds; never falls with rows, layers or context."""

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        """One call: rows with `context` tokens before each through so many layers, then the head for all rows or fewer.

        `seconds(n, 0, 0)` is the head alone, `num_head_rows=0` the layers alone.
        """
        ...

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        """Learn what such a call took."""
        ...
