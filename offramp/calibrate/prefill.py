"""Texts through an executor again, many in a call, on pages that no request holds: plain rows, full depth or by ranges.

Rows don't depend on their batch, so what comes out is what decoding token by token computes, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from offramp.cache.sequence import pages_for
from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.engine.engine import Engine
from offramp.errors import ResourceError

MOST_ROWS = 512
"""Of a call."""
MOST_LOGITS = 64
"""Rows of logits held at once: the vocabulary times this many f32."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens start..stop-1 of one text; what comes before them ran in an earlier call."""

    text: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Some pieces and their rows, one behind the other."""

    pieces: list[Piece]
    rows: Rows

    def rows_of(self, index: int, first: int) -> Ids:
        """Where the tokens of a piece from `first` of its text on are among the rows."""
        before = sum(piece.stop - piece.start for piece in self.pieces[:index])
        piece = self.pieces[index]
        return np.arange(
            before + max(first, piece.start) - piece.start, before + piece.stop - piece.start, dtype=np.int32
        )


def calls(engine: Engine, texts: Sequence[Ids]) -> Iterator[Call]:
    """All texts in order. The engine must be idle; it lends its pages while this runs."""
    if not texts:
        return
    longest = max(map(len, texts))
    with engine.lend_pages(pages_for(longest) + MOST_ROWS // PAGE_SIZE) as pages:
        if len(pages) < pages_for(longest):
            raise ResourceError(
                f"a text of {longest} tokens needs {pages_for(longest)} K/V pages, and {len(pages)} are free",
                hint="give the K/V cache more memory",
            )
        for pieces in plan_pieces([len(text) for text in texts], most_rows=MOST_ROWS, num_pages=len(pages)):
            yield Call(pieces, pack_pieces(pieces, texts, pages))


def plan_pieces(lengths: Sequence[int], *, most_rows: int, num_pages: int) -> Iterator[list[Piece]]:
    """Whole texts together as long as rows and pages last; one that is too long for a call takes several, alone."""
    together: list[Piece] = []
    for text, length in enumerate(lengths):
        held = sum(pages_for(piece.stop) for piece in together) + pages_for(length)
        num_rows = sum(piece.stop for piece in together) + length
        if together and (num_rows > most_rows or held > num_pages):
            yield together
            together = []
        if length <= most_rows:
            together.append(Piece(text, 0, length))
        else:
            yield from ([Piece(text, start, min(start + most_rows, length))] for start in range(0, length, most_rows))
    if together:
        yield together


def pack_pieces(pieces: Sequence[Piece], texts: Sequence[Ids], pages: Ids) -> Rows:
    """Chain rows of these pieces, each with pages of its own; a text that takes several calls has the first ones."""
    positions = np.concatenate([np.arange(piece.start, piece.stop, dtype=np.int32) for piece in pieces])
    counts = [piece.stop - piece.start for piece in pieces]
    page_starts = np.zeros(len(pieces) + 1, np.int32)
    np.cumsum([pages_for(piece.stop) for piece in pieces], out=page_starts[1:])
    return Rows(
        tokens=np.concatenate([texts[piece.text][piece.start : piece.stop] for piece in pieces]),
        sequence=np.repeat(np.arange(len(pieces), dtype=np.int32), counts),
        positions=positions,
        slots=positions,
        prefix_lens=positions,
        ancestor_slots=np.zeros(0, np.int32),
        ancestor_starts=np.zeros(len(positions) + 1, np.int32),
        page_ids=pages[: page_starts[-1]],
        page_starts=page_starts,
    )
