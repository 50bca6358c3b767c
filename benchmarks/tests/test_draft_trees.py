"""Trees that are replayed are those that a side layer grows, and the arithmetic of policies is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.draft_trees import (
    DEPTH,
    OVERHEAD_MS,
    WIDTH,
    Node,
    Tree,
    chain,
    dynamic,
    foreseen,
    grow_all,
    judged,
    leaves,
    none,
    replay,
    step_ms,
)
from offramp.core import Rows
from offramp.llm.drafter_pack import native_side
from offramp.native import build_executor
from offramp.testing.side import random_drafter
from offramp.testing.toy import toy_config, toy_source

CONFIG = toy_config(hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=64, num_layers=3)
TARGET = build_executor(toy_source(CONFIG, seed=7), kv="f32", num_pages=24, threads=1)
PACK = random_drafter(CONFIG, taps=(1, 3))
TEXT = [(7 * place) % 60 for place in range(45)]


def test_every_branch_is_what_a_chain_of_its_tokens_says() -> None:
    states = np.random.default_rng(1).standard_normal((len(TEXT), 2, 32)).astype(np.float32)
    first = 40
    grown = grow_all(native_side(TARGET, PACK, 24), TEXT, first, states)
    assert len(grown) == len(TEXT) - first
    for at in (0, 3):
        seen, root = grown[at], first - 1 + at
        assert len(seen.tokens) == WIDTH ** (DEPTH + 1) - WIDTH
        for leaf in range(len(seen.tokens) - WIDTH**DEPTH, len(seen.tokens), 3):
            path: list[int] = []
            node = leaf
            while node >= 0:
                path.insert(0, node)
                node = seen.parents[node]
            model = native_side(TARGET, PACK, 4)
            places = np.arange(root + 1, dtype=np.int32)
            pages = [np.arange(4, dtype=np.int32)]
            rows = Rows.plain(np.array(TEXT[1 : root + 2], np.int32), np.zeros(root + 1, np.int32), places, pages)
            own, _ = model.run_first(rows, states[: root + 1], np.array([root], np.int32))
            for depth, node in enumerate(path):
                assert seen.tokens[node] in model.executor.top(own, WIDTH, model.head).ids[0], (at, leaf, depth)
                row = np.array([root + 1 + depth], dtype=np.int32)
                own, _ = model.run_next(
                    Rows.plain(np.array([seen.tokens[node]], np.int32), np.zeros(1, np.int32), row, pages), own
                )


def tree_of(*chances: float, stands: int = 0) -> Tree:
    """A whole binary tree whose likeliest tokens have these chances given their parents; so many of them stand."""
    tree: Tree = []
    level = [-1]
    for depth, chance in enumerate(chances):
        nodes = []
        for parent in level:
            above = tree[parent].chance if parent >= 0 else 1.0
            right = depth < stands and (parent < 0 or tree[parent].stands)
            for rank, share in enumerate((chance, (1 - chance) / 2)):
                nodes.append(len(tree))
                tree.append(Node(parent, depth, above * share, right and rank == 0))
        level = nodes
    return tree


def test_steps_cost_what_the_table_says() -> None:
    assert step_ms(1) == pytest.approx(4.7 + OVERHEAD_MS)
    assert step_ms(5) == pytest.approx((6.3 + 9.6) / 2 + OVERHEAD_MS)


def test_policies_draft_where_it_is_worth_it() -> None:
    sure, unsure = tree_of(0.95, 0.9, 0.9, stands=3), tree_of(0.1, 0.1, 0.1)
    speed = 1.0 / step_ms(1)
    assert chain(unsure, speed, 0.5)[0] == []
    kept, rounds, rows = chain(sure, speed, 0.5)
    assert (len(kept), rounds, rows) == (3, 3, 3)
    torn = tree_of(0.5, 0.9)
    assert len(leaves(torn, speed, 0.1)[0]) > len(chain(torn, speed, 0.1)[0])
    assert dynamic(torn, speed, 0.1)[2] > dynamic(torn, speed, 0.1)[1], "two rows in a round"


def test_a_replay_adds_up() -> None:
    answers = [[tree_of(0.95, 0.9, 0.9, stands=3)] * 12]
    assert replay(answers, none, 0.5) == pytest.approx((1 / step_ms(1), 1.0, 1.0))
    speed, rows, tokens = replay(answers, chain, 0.5)
    assert (rows, tokens) == (4.0, 4.0)
    assert speed == pytest.approx(4 / (step_ms(4) + 3 * 0.5))
    assert replay(answers, foreseen, 0.5)[0] == pytest.approx(4 / step_ms(4))


def test_what_stands_is_what_the_text_says() -> None:
    states = np.zeros((len(TEXT), 2, 32), dtype=np.float32)
    seen = grow_all(native_side(TARGET, PACK, 24), TEXT, 44, states)[0]
    text = [*TEXT, seen.tokens[0], seen.tokens[3], 99]
    rates: dict[tuple[int, int, int], list[int]] = {}
    tree = judged(seen, text, 45, rates)
    assert [node for node, each in enumerate(tree) if each.stands] == [0, 3]
    assert sum(tested for _, tested in rates.values()) == 2 + 2 + 2
