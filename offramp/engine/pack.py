"""Plan and drafts -> one ragged batch: flat index maps, pure.

Per sequence the rows are its planned tokens, then the nodes of its draft tree in scratch slots above the committed
length: node i of a sequence with n tokens writes slot n + i at logical position n + depth - 1 (depth counts from 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from offramp.cache.sequence import SequenceCache
from offramp.core import Ids, Place, Rows, SequenceKey, TokenTree
from offramp.engine.planner import PlanItem
from offramp.model.executor import Hidden
from offramp.sample.sampler import changes_rows

NO_ROWS: Ids = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The rows of a batch that may leave early under one policy, each of another sequence."""

    rows: Ids  # batch rows, rising
    places: Ids  # their entries of logit_rows
    keys: list[SequenceKey]
    outputs: Ids  # index of the output token that each yields
    plain: list[bool]  # the token is that of the largest raw logit, and nobody asks for more of the row


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A row that was run to `depth` while its step drafted, and waits there."""

    depth: int
    hidden: Hidden  # one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of one step and what each is for. Index arrays count rows of the batch."""

    rows: Rows
    keys: list[SequenceKey]  # [seqs]
    caches: list[SequenceCache]  # [seqs]
    committed: Ids  # [seqs], tokens of the sequence that are not drafts
    places: list[Place]  # where tokens are drawn; Place.row counts entries of logit_rows
    logit_rows: Ids
    candidates: dict[str, Candidates]  # by exit policy; a request without one has none
    prompt_rows: list[Ids]  # [seqs], rows whose logits give prompt logprobs
    started: Mapping[int, Started] = field(default_factory=dict)  # by batch row; all others begin at the embedding


def pack(
    items: Sequence[PlanItem],
    drafts: Sequence[TokenTree],
    started: Mapping[SequenceKey, Sequence[Started]] | None = None,
) -> Batch:
    """One sequence of the batch per item, in order; a draft only where the item yields a token.

    `started` has the leading rows of some sequences, as far as they ran while their drafts were made.
    """
    sequence: list[int] = []
    numbers: list[int] = []  # of the slots; lists, since most steps have few rows, and numpy's calls cost more
    firsts: list[int] = []
    for index, (item, tree) in enumerate(zip(items, drafts, strict=True)):
        firsts.append(len(numbers))
        numbers += range(item.start, item.stop + len(tree))
        sequence += [index] * (len(numbers) - firsts[-1])
    slots = np.array(numbers, dtype=np.int32)
    positions, prefix_lens = slots.copy(), slots.copy()
    ancestors: dict[int, Sequence[int]] = {}
    for item, tree, first in zip(items, drafts, firsts, strict=True):
        if not tree.is_chain:
            _place_tree(tree, first + item.stop - item.start, item.stop, positions, prefix_lens, ancestors)
    ancestor_slots, ancestor_starts = _flatten(ancestors, len(slots))
    page_lists = [item.task.cache.pages.view for item in items]
    rows = Rows(
        tokens=_tokens(items, drafts),
        sequence=np.array(sequence, dtype=np.int32),
        positions=positions,
        slots=slots,
        prefix_lens=prefix_lens,
        ancestor_slots=ancestor_slots,
        ancestor_starts=ancestor_starts,
        page_ids=np.concatenate(page_lists),
        page_starts=_starts([len(pages) for pages in page_lists]),
    )
    places, logit_rows = _places(items, drafts, firsts)
    return Batch(
        rows=rows,
        keys=[item.task.sequence.key for item in items],
        caches=[item.task.cache for item in items],
        committed=np.array([item.stop for item in items], dtype=np.int32),
        places=places,
        logit_rows=logit_rows,
        candidates=_candidates(places, logit_rows),
        prompt_rows=[_prompt_rows(item, first) for item, first in zip(items, firsts, strict=True)],
        started=_started(items, firsts, started) if started else {},
    )


def append_chain_rows(rows: Rows, tokens: Ids, sequence: Ids, positions: Ids) -> Rows:
    """`rows` and then plain rows of sequences that are in the batch already."""
    last = rows.ancestor_starts[-1:]
    return Rows(
        tokens=np.concatenate([rows.tokens, tokens]),
        sequence=np.concatenate([rows.sequence, sequence]),
        positions=np.concatenate([rows.positions, positions]),
        slots=np.concatenate([rows.slots, positions]),
        prefix_lens=np.concatenate([rows.prefix_lens, positions]),
        ancestor_slots=rows.ancestor_slots,
        ancestor_starts=np.concatenate([rows.ancestor_starts, np.repeat(last, len(tokens))]),
        page_ids=rows.page_ids,
        page_starts=rows.page_starts,
    )


def _tokens(items: Sequence[PlanItem], drafts: Sequence[TokenTree]) -> Ids:
    parts: list[Ids] = []
    for item, tree in zip(items, drafts, strict=True):
        item.task.cache.assert_writable(item.start, item.stop + len(tree))
        parts.append(item.task.sequence.tokens.view[item.start : item.stop])
        if len(tree):
            parts.append(np.array(tree.token_ids, dtype=np.int32))
    return np.concatenate(parts)


def _place_tree(
    tree: TokenTree, first: int, base: int, positions: Ids, prefix_lens: Ids, ancestors: dict[int, Sequence[int]]
) -> None:
    """Set the logical positions and ancestors of a tree whose node 0 is row `first` and writes slot `base`."""
    for node, path in enumerate(tree.paths()):
        depth = len(path) - 1
        positions[first + node] = base + depth
        if path[-1] == depth:  # nodes 0..depth are its path: slot == position all the way down
            prefix_lens[first + node] = base + depth
        else:
            prefix_lens[first + node] = base
            ancestors[first + node] = [base + above for above in path[:-1]]


def _flatten(ancestors: dict[int, Sequence[int]], num_rows: int) -> tuple[Ids, Ids]:
    if not ancestors:
        return NO_ROWS, np.zeros(num_rows + 1, dtype=np.int32)
    flat = [slot for row in range(num_rows) for slot in ancestors.get(row, ())]
    return np.array(flat, dtype=np.int32), _starts([len(ancestors.get(row, ())) for row in range(num_rows)])


def _places(items: Sequence[PlanItem], drafts: Sequence[TokenTree], firsts: list[int]) -> tuple[list[Place], Ids]:
    """Where tokens are drawn: the last planned row of each item that yields, and its draft rows."""
    places: list[Place] = []
    logit_rows: list[int] = []
    for item, tree, first in zip(items, drafts, firsts, strict=True):
        if not item.yields:
            assert len(tree) == 0, "a draft needs a sequence that has caught up"
            continue
        places.append(Place(item.task.sequence, tree, len(logit_rows)))
        last = first + item.stop - item.start - 1
        logit_rows.extend(range(last, last + len(tree) + 1))
    return places, np.array(logit_rows, dtype=np.int32)


def _candidates(places: Sequence[Place], logit_rows: Ids) -> dict[str, Candidates]:
    """By policy, the rows behind the prompt that yield a token: never prompt rows, which run all layers."""
    by_policy: dict[str, list[Place]] = {}
    for place in places:
        policy = place.sequence.request.exits.policy
        if policy is not None and place.sequence.output_len:
            assert len(place.tree) == 0, "a request has drafts or exits, never both"
            by_policy.setdefault(policy, []).append(place)
    return {policy: _candidates_at(chosen, logit_rows) for policy, chosen in by_policy.items()}


def _candidates_at(places: Sequence[Place], logit_rows: Ids) -> Candidates:
    at = np.array([place.row for place in places], dtype=np.int32)
    outputs = np.array([place.sequence.output_len for place in places], dtype=np.int32)
    plain = [_takes_likeliest(place) for place in places]
    return Candidates(logit_rows[at], at, [place.sequence.key for place in places], outputs, plain)


def _takes_likeliest(place: Place) -> bool:
    sequence, params = place.sequence, place.sequence.request.params
    if not params.greedy or params.logprobs is not None or sequence.matcher is not None:
        return False
    return not changes_rows(params, sequence.output_len)


def _prompt_rows(item: PlanItem, first: int) -> Ids:
    if not item.task.wants_prompt_logprobs:
        return NO_ROWS
    begin = max(item.start, len(item.task.prompt_logprobs))
    end = min(item.stop, item.task.sequence.prompt_len - 1)
    return np.arange(first + begin - item.start, first + end - item.start, dtype=np.int32)


def _started(
    items: Sequence[PlanItem], firsts: list[int], started: Mapping[SequenceKey, Sequence[Started]]
) -> dict[int, Started]:
    pairs = zip(items, firsts, strict=True)
    return {
        first + index: each
        for item, first in pairs
        for index, each in enumerate(started.get(item.task.sequence.key, ()))
    }


def _starts(lengths: list[int]) -> Ids:
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts
