from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.cache.sequence import pages_for
from offramp.calibrate.prefill import calls, pack_pieces, plan_pieces
from offramp.errors import ResourceError
from tests.calibrate.settling import NUM_LAYERS, rig, settling_model


@given(st.lists(st.integers(1, 90), max_size=12), st.integers(8, 64), st.integers(0, 6))
def test_each_token_runs_once_in_order_within_bounds(lengths: list[int], most_rows: int, more_pages: int) -> None:
    num_pages = pages_for(max(lengths, default=1)) + more_pages
    ran: dict[int, int] = {}
    for pieces in plan_pieces(lengths, most_rows=most_rows, num_pages=num_pages):
        assert sum(piece.stop - piece.start for piece in pieces) <= most_rows
        assert sum(pages_for(piece.stop) for piece in pieces) <= num_pages
        for piece in pieces:
            assert piece.start == ran.get(piece.text, 0)
            assert piece.start == 0 or len(pieces) == 1, "its earlier tokens' pages are its own still"
            ran[piece.text] = piece.stop
        rows = pack_pieces(
            pieces, [np.arange(n, dtype=np.int32) for n in lengths], np.arange(num_pages, dtype=np.int32)
        )
        assert len(rows) == sum(piece.stop - piece.start for piece in pieces)
        assert (rows.tokens == rows.positions).all()
    assert ran == dict(enumerate(lengths))


def test_states_are_those_of_each_text_alone() -> None:
    here = rig(settling_model(1.0))
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 200, n).astype(np.int32) for n in (5, 33, 90, 64, 1, 32)]

    def states(some: list[np.ndarray]) -> list[np.ndarray]:
        found: list[list[np.ndarray]] = [[] for _ in some]
        for call in calls(here.engine, some):
            h = here.executor.run_layers(here.executor.embed(call.rows), call.rows, 0, NUM_LAYERS)
            for index, piece in enumerate(call.pieces):
                found[piece.text].append(h.take(call.rows_of(index, piece.start)).numpy())
        return [np.concatenate(parts) for parts in found]

    together = states(texts)
    for text, state in zip(texts, together, strict=True):
        assert len(state) == len(text)
        assert np.array_equal(states([text])[0], state)
    assert here.engine.statistics.num_used_pages == 0


def test_a_text_that_no_pages_hold_is_refused() -> None:
    here = rig(settling_model(1.0))
    with pytest.raises(ResourceError, match="pages"):
        next(calls(here.engine, [np.zeros(32 * 65, np.int32)]))
