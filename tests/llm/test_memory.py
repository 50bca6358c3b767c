"""K/V memory is planned in plain ints: what fits, what is refused, what is lowered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offramp.core import PAGE_SIZE
from offramp.errors import InvalidRequestError, ResourceError
from offramp.llm.memory import KvPlan, available_memory, parse_bytes, plan_kv
from offramp.native.kv import page_bytes
from offramp.testing.toy import toy_config

CONFIG = toy_config(max_context=1024)
PAGE = page_bytes(CONFIG, "f16")
LOTS = 2**40


def plan(
    *, kv_memory: int | str | None = None, max_context: int | None = None, seqs: int = 4, available: int = LOTS
) -> KvPlan:
    return plan_kv(
        CONFIG, kv="f16", kv_memory=kv_memory, max_context=max_context, max_num_seqs=seqs, available=available
    )


def test_a_page_holds_keys_and_padded_values_of_all_layers() -> None:
    assert CONFIG.num_layers * CONFIG.num_kv_heads * PAGE_SIZE * (16 + 16) * 2 == PAGE
    assert page_bytes(CONFIG, "f32") == 2 * PAGE
    odd = toy_config(head_dim=20, hidden_size=80)
    assert page_bytes(odd, "f16") == odd.num_layers * odd.num_kv_heads * PAGE_SIZE * (20 + 24) * 2


def test_by_default_every_sequence_of_usual_length_has_room() -> None:
    assert plan().num_pages == 4 * 1024 // PAGE_SIZE
    assert plan().max_context == 1024


def test_by_default_one_full_sequence_fits_whatever_the_number_of_sequences() -> None:
    config = toy_config(max_context=8192)
    chosen = plan_kv(config, kv="f16", kv_memory=None, max_context=None, max_num_seqs=1, available=LOTS)
    assert chosen.num_pages == 8192 // PAGE_SIZE


def test_by_default_at_most_half_of_the_available_memory_is_taken() -> None:
    chosen = plan(available=100 * PAGE)
    assert (chosen.num_pages, chosen.max_context) == (50, 1024)


def shared(share: int, *, available: int = 60 * PAGE, beside: int = 0) -> KvPlan:
    return plan_kv(
        CONFIG,
        kv="f16",
        kv_memory=None,
        max_context=None,
        max_num_seqs=4,
        available=available,
        share=share,
        beside=beside,
    )


def test_a_share_is_taken_whole_if_it_holds_a_sequence() -> None:
    assert shared(40 * PAGE).num_pages == 40, "more than half of what is available"
    assert shared(32 * PAGE) == KvPlan(32, 1024, PAGE)
    assert shared(31 * PAGE).num_pages == 30, "half of what is available"
    assert shared(-PAGE).num_pages == 30
    assert shared(LOTS).num_pages == 4 * 1024 // PAGE_SIZE


def test_what_pages_take_elsewhere_counts() -> None:
    assert shared(120 * PAGE, beside=2 * PAGE) == KvPlan(40, 1024, PAGE)
    assert shared(0, beside=2 * PAGE).num_pages == 10


def test_an_unasked_context_is_lowered_to_what_fits() -> None:
    assert plan(kv_memory=3 * PAGE + 5) == KvPlan(3, 3 * PAGE_SIZE, PAGE)


def test_an_asked_context_that_does_not_fit_is_refused_with_both_sizes() -> None:
    with pytest.raises(ResourceError, match=r"1000 tokens takes 512\.0 KiB .* gives 48\.0 KiB") as caught:
        plan(kv_memory=3 * PAGE, max_context=1000)
    assert f"at most {3 * PAGE_SIZE}" in caught.value.hint
    assert plan(kv_memory=3 * PAGE, max_context=3 * PAGE_SIZE).max_context == 3 * PAGE_SIZE


def test_more_than_is_available_is_refused_with_both_sizes() -> None:
    with pytest.raises(ResourceError, match=r"2048\.0 MiB .* 1024\.0 MiB are available"):
        plan(kv_memory="2GiB", available=2**30)
    assert plan(kv_memory="1GiB", available=2**30).num_pages == 2**30 // PAGE


@pytest.mark.parametrize("memory", [1, PAGE - 1])
def test_less_than_a_page_is_refused(memory: int) -> None:
    with pytest.raises(ResourceError, match="one page"):
        plan(kv_memory=memory)


def test_no_memory_at_all_is_refused() -> None:
    with pytest.raises(ResourceError, match="one page"):
        plan(available=PAGE)


@pytest.mark.parametrize("context", [1025, 1, 0, -3])
def test_an_impossible_context_is_refused(context: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"max_context={context} is impossible") as caught:
        plan(max_context=context)
    assert "1024" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, 7),
        ("512", 512),
        ("1KiB", 1024),
        ("2 MiB", 2**21),
        ("1.5GiB", 3 * 2**29),
        ("3gb", 3 * 10**9),
        ("10B", 10),
    ],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected


WRONG_TEXTS = ["", "GiB", "-1", "0", "1e9", "2TB", "1 2", "0.1B", "9" * 400, "9" * 5000, "9" * 20 + "GiB", "٣"]


@pytest.mark.parametrize("text", [*WRONG_TEXTS, 0, -5, True, 1.5, 1e9, [], b"5", pytest.param(10**5000, id="huge")])
def test_impossible_sizes(text: Any) -> None:
    with pytest.raises(InvalidRequestError, match="kv_memory=") as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 150


def test_a_huge_size_is_more_than_is_available() -> None:
    with pytest.raises(ResourceError, match="are available"):
        plan(kv_memory=2**60)


def machine(root: Path, *, cgroup: str = "0::/a/b\n", limits: dict[str, tuple[str, str, str]] | None = None) -> Path:
    """A /proc and a cgroup tree: 1000 KiB available, and per folder a limit, its use and its droppable cache."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:       1000 kB\n")
    (root / "proc" / "self" / "cgroup").write_text(cgroup)
    for folder, (limit, used, inactive) in (limits or {}).items():
        path = root / "cgroup" / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "memory.max").write_text(limit + "\n")
        (path / "memory.current").write_text(used + "\n")
        (path / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    return root


def available(root: Path) -> int:
    return available_memory(root / "proc", root / "cgroup")


def test_available_memory_without_cgroups(tmp_path: Path) -> None:
    assert available(machine(tmp_path)) == 1000 * 1024


def test_the_tightest_cgroup_above_counts(tmp_path: Path) -> None:
    limits = {"a": ("5000", "3000", "1000"), "a/b": ("max", "10", "0"), "a/other": ("1", "1", "0")}
    assert available(machine(tmp_path, limits=limits)) == 3000


def test_the_root_cgroup_counts_in_a_container(tmp_path: Path) -> None:
    assert available(machine(tmp_path, cgroup="0::/\n", limits={"": ("5000", "4000", "0")})) == 1000


def test_an_overdrawn_cgroup_has_nothing_left(tmp_path: Path) -> None:
    assert available(machine(tmp_path, limits={"a/b": ("100", "200", "0")})) == 0


@pytest.mark.parametrize(("asked", "said"), [(1, r"0\.0 KiB"), (1000, r"1\.0 KiB"), ("2KiB", r"2\.0 KiB")])
def test_less_than_a_page_names_what_was_asked_for(asked: int | str, said: str) -> None:
    with pytest.raises(ResourceError, match=rf"(?m)one page .* takes .* and kv_memory gives {said}$"):
        plan(kv_memory=asked)
