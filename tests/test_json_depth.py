"""One count of levels, against the obvious recursion, and the same in all that refuses by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import InvalidRequestError
from offramp.grammar.schema import check_depth
from offramp.json_depth import MOST_LEVELS, is_too_deep
from offramp.prompt_lines import prompt_lines

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


def num_levels(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(num_levels, inner), default=0)


def nested(levels: int, innermost: object) -> dict[str, object]:
    """So many levels, of which `innermost` may be one more."""
    value = innermost
    for number in range(levels - 1):
        value = [value] if number % 2 else {"x": value}
    return {"prompt": "p", "x": value}


@given(VALUES, st.integers(0, 6))
def test_levels_are_lists_and_objects_within_each_other(value: object, most: int) -> None:
    assert is_too_deep(value, most) == (num_levels(value) > most)


@pytest.mark.parametrize("innermost", [[], {}, 5, "x", None])
def test_all_that_refuses_by_it_counts_alike(innermost: object, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    for levels in (MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1):
        value = nested(levels, innermost)
        path.write_text(json.dumps(value))
        if num_levels(value) <= MOST_LEVELS:
            check_depth(value)
            assert len(list(prompt_lines(path))) == 1
            continue
        with pytest.raises(InvalidRequestError, match=f"nested more than {MOST_LEVELS} deep"):
            check_depth(value)
        with pytest.raises(InvalidRequestError, match=f"nested deeper than {MOST_LEVELS} levels"):
            list(prompt_lines(path))


def test_no_depth_ends_pythons_stack() -> None:
    value: object = []
    for _ in range(100_000):
        value = [value]
    assert is_too_deep(value)
    assert is_too_deep(value, 99_999)
    while value:  # nor does its end
        value = value[0] if isinstance(value, list) else None
