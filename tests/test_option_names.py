"""Messages name options as their reader gave them."""

from __future__ import annotations

import pytest

from offramp.option_names import with_flags

FLAGS = {"max_context": "--max-model-len", "risk": "--risk", "exits": "--exits"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lower max_context to at most 16", "lower --max-model-len to at most 16"),
        ("risk=2 is impossible", "--risk=2 is impossible"),
        ("risk takes a number", "--risk takes a number"),
        ("the risk that exits take", "the risk that exits take"),
        ("start with exits=PACK", "start with --exits=PACK"),
        ("--risk=2", "--risk=2"),
        ("offramp.risk=2, my_max_context, max_contexts", "offramp.risk=2, my_max_context, max_contexts"),
    ],
)
def test_options_become_flags_and_words_stay_words(text: str, wanted: str) -> None:
    assert with_flags(text, FLAGS) == wanted
