"""The twin and the scripted model catch an engine that breaks the paging contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Rows
from offramp.errors import CorruptModelError
from offramp.model.executor import HeadId, LayerExecutor
from offramp.model.heads import HeadWeights
from offramp.testing.batches import Row, chain, pack_rows, physical_slots, tree
from offramp.testing.scripted import ScriptedModel, follow, mixing
from offramp.testing.toy import toy_config, toy_source
from offramp.testing.twin import TwinExecutor

PAGES = [[3, 1], [0, 2]]
TOKENS = [5, 9, 200, 31, 7, 7, 64]


def twin() -> LayerExecutor:
    return TwinExecutor(toy_source(toy_config(num_layers=2), seed=1), num_pages=4)


def scripted() -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=4)


@pytest.fixture(params=[twin, scripted])
def executor(request: pytest.FixtureRequest) -> LayerExecutor:
    make: Callable[[], LayerExecutor] = request.param
    return make()


def run(executor: LayerExecutor, rows: Rows) -> np.ndarray:
    return executor.logits(executor.run_layers(executor.embed(rows), rows, 0, 2))


def test_reading_an_unpaid_layer_is_caught(executor: LayerExecutor) -> None:
    first, second = pack_rows(chain(TOKENS[:4]), PAGES), pack_rows(chain([1], start=4), PAGES)
    h = executor.run_layers(executor.embed(first), first, 0, 1)
    deeper = executor.run_layers(executor.embed(second), second, 0, 1)
    with pytest.raises(AssertionError, match="layer 1"):
        executor.run_layers(deeper, second, 1, 2)
    executor.fill(h, first, 1, 2)
    executor.run_layers(deeper, second, 1, 2)


def test_a_wrong_page_table_is_caught(executor: LayerExecutor) -> None:
    run(executor, pack_rows(chain(TOKENS), PAGES))
    with pytest.raises(AssertionError, match="not written"):
        run(executor, pack_rows(chain([1], start=7), [[1, 3], [0, 2]]))


def test_a_slot_of_another_position_is_caught(executor: LayerExecutor) -> None:
    run(executor, pack_rows(chain(TOKENS), PAGES))
    displaced = Row(token=1, sequence=0, position=7, slot=7, prefix_len=5, ancestors=(6, 5))
    with pytest.raises(AssertionError, match="not written"):
        run(executor, pack_rows([displaced], PAGES))


@pytest.mark.parametrize(
    "change",
    [
        {"slots": np.full(2, 3, np.int32)},  # two rows write one slot
        {"slots": np.array([0, 64], np.int32)},  # beyond the pages
        {"prefix_lens": np.array([0, 0], np.int32)},  # position 1 without ancestor 0
        {"page_ids": np.array([3, 4, 0, 2], np.int32)},  # no such page
        {"tokens": np.array([0, 260], np.int32)},  # no such token
    ],
)
def test_impossible_rows_are_caught(executor: LayerExecutor, change: dict[str, np.ndarray]) -> None:
    with pytest.raises(AssertionError):
        run(executor, replace(pack_rows(chain([4, 4]), PAGES), **change))


def test_scripted_history_goes_through_pages_trees_and_copies() -> None:
    seen: list[tuple[int, ...]] = []

    def spy(history: tuple[int, ...], depth: int) -> np.ndarray:
        seen.append(history)
        return mixing()(history, depth)

    model = ScriptedModel(spy, num_pages=4)
    run(model, pack_rows(chain(range(33), sequence=1), PAGES))
    nodes = tree([50, 51, 52], [-1, 0, 0], sequence=1, start=33)
    run(model, pack_rows(nodes, PAGES))
    assert seen[-1] == (*range(33), 50, 52)
    model.copy_slots(physical_slots(PAGES[1], [33, 35]), physical_slots(PAGES[1], [33, 34]))
    run(model, pack_rows(chain([60], sequence=1, start=35), PAGES))
    assert seen[-1] == (*range(33), 50, 52, 60)


def test_scripted_rows_must_come_from_the_layer_below() -> None:
    model = ScriptedModel(mixing(), num_pages=4)
    rows = pack_rows(chain([1, 2]), PAGES)
    with pytest.raises(AssertionError, match="another depth"):
        model.run_layers(model.embed(rows), rows, 1, 2)


def test_follow_continues_the_known_text() -> None:
    model = ScriptedModel(follow([1, 2, 3, 4], [1, 5, 6], otherwise=99), num_pages=4)
    assert run(model, pack_rows(chain([1, 2, 3, 8]), PAGES)).argmax(axis=1).tolist() == [2, 3, 4, 99]
    assert model.top(model.embed(pack_rows(chain([1]), PAGES)), 3).ids.tolist() == [[2, 3, 4]]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_toy_continuations_wander_and_depend_on_the_whole_history(seed: int) -> None:
    source = toy_source(toy_config(), seed)

    def last_logits(tokens: list[int]) -> np.ndarray:
        executor = TwinExecutor(source, num_pages=1)
        rows = pack_rows(chain(tokens), [[0]])
        h = executor.run_layers(executor.embed(rows), rows, 0, source.config.num_layers)
        return executor.logits(h)[-1]

    tokens = [1, 2, 3]
    while len(tokens) < 24:
        tokens.append(int(last_logits(tokens).argmax()))
    assert len(set(tokens)) > 12
    assert np.abs(last_logits(tokens) - last_logits([4, *tokens[1:]])).max() > 0.01


def test_top_takes_one_token_to_the_whole_vocabulary(executor: LayerExecutor) -> None:
    h = executor.embed(pack_rows(chain([1]), PAGES))
    assert executor.top(h, executor.config.vocab_size).ids.shape == (1, executor.config.vocab_size)
    for k in (0, -1, executor.config.vocab_size + 1):
        with pytest.raises(AssertionError):
            executor.top(h, k)


def test_a_reduced_head_has_its_tokens_columns_and_names_them(executor: LayerExecutor) -> None:
    ids = np.array([4, 9, 100, 259], np.int32)
    head = executor.add_head(HeadWeights(vocab_ids=ids))
    h = executor.embed(pack_rows(chain([1, 2]), PAGES))
    everything = executor.logits(h)
    assert (executor.logits(h, head) == everything[:, ids]).all()
    assert (executor.logits(h, head, ids[[3, 0]]) == everything[:, [259, 4]]).all()
    assert (executor.top(h, 1, head).ids[:, 0] == ids[everything[:, ids].argmax(axis=1)]).all()
    with pytest.raises(AssertionError, match="does not know"):
        executor.logits(h, head, np.array([5], np.int32))
    with pytest.raises(AssertionError, match="no head"):
        executor.logits(h, HeadId(2))
    with pytest.raises(CorruptModelError, match="vocab_ids"):
        executor.add_head(HeadWeights(vocab_ids=ids[::-1]))


def test_two_copies_to_one_slot_are_caught(executor: LayerExecutor) -> None:
    with pytest.raises(AssertionError, match="two copies"):
        executor.copy_slots(np.array([0, 1], np.int32), np.array([5, 5], np.int32))
