"""Asking for drafts, and judging them."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core.grammar import Matcher
from offramp.core.ids import Ids
from offramp.core.request import ENGINE_CHOICE, DraftParams, Sequence, SequenceKey
from offramp.core.tree import TokenTree
from offramp.errors import OfframpError


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step runs besides drafts."""

    num_rows: int
    num_head_rows: int  # places where a token is drawn; each yields at least one
    context: int  # mean tokens before a row
    overhead: float  # seconds that such a step takes besides the executor's and drafting
    surprise: float | None = None  # seconds that the step before took beyond these, its drafting and its rows' costs


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """A place where a draft may go: after the last of `token_ids`, at most this many nodes and this deep."""

    key: SequenceKey
    prompt_len: int
    token_ids: Ids  # prompt and output so far
    max_nodes: int
    max_depth: int
    drafting: DraftParams = ENGINE_CHOICE
    greedy: bool = True  # the sequence takes the likeliest tokens: drafts stand more often than where they are drawn
    salt: str = ""  # what is learned from this sequence may serve only sequences under the same salt
    sequence: Sequence | None = None  # whose draws drafters with logits repeat; read only
    matcher: Matcher | None = None  # where the sequence stands in its grammar; drafters leave it as it is
    load: StepLoad | None = None  # of the step that asks; None: it runs nothing but the asks' own rows


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sequence continues: its draft and the logits rows `row` (after the last token), `row + 1 + node`."""

    sequence: Sequence
    tree: TokenTree
    row: int


@dataclass(frozen=True, slots=True)
class Written:
    """Whose the tokens of a block are, where a little model writes: its own come first, then at most one of the big's.

    `differing` counts places of the block: tokens of the little model's that plain decoding would not have drawn there.
    """

    num_little: int
    differing: tuple[int, ...] = ()
    rolled_back: bool = False  # the big's token replaces one that the little model wrote

    def cut(self, count: int) -> Written:
        """Of the first `count` tokens of the block."""
        differing = tuple(place for place in self.differing if place < count)
        return Written(min(self.num_little, count), differing, self.rolled_back and self.num_little < count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What plain decoding yields at one place: accepted draft tokens, then the recovered or bonus token.

    Where a little model writes, the tokens may be others: those that its policy lets stand, and `written` says so.

    `rows[i]` is the row of logits (counted from the place's first) that decided `token_ids[i]`. With an `error` the
    tokens before it are still right, and nothing follows.
    """

    token_ids: tuple[int, ...]
    accepted: tuple[int, ...]  # draft nodes, root to leaf; token_ids[:len(accepted)] are theirs
    rows: tuple[int, ...]
    error: OfframpError | None = None
    written: Written | None = None
