"""The suffix automaton against the naive truth: every substring, its count, the longest match, and what is proposed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.core import Ids
from offramp.native._native import suffix_grade
from offramp.native.suffix import GRADES, Growth, SuffixAutomaton, SuffixReader, Worth, grow

MIB = 1 << 20
ALL = 1 << 30
Text = list[int]
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=14), min_size=1, max_size=4)
SMALL = settings(max_examples=150, deadline=None)


def ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int32)


def automaton_of(texts: Sequence[Text], *, one_by_one: bool = False) -> SuffixAutomaton:
    automaton = SuffixAutomaton(MIB, max_walk=ALL)
    for text in texts:
        automaton.begin_text()
        for part in [[token] for token in text] if one_by_one else [text]:
            assert automaton.extend(ids(part)) == len(part)
    return automaton


def ends(texts: Sequence[Text], string: Text) -> list[int]:
    """Where it ends, over all texts; positions count on from text to text."""
    found, base = [], 0
    for text in texts:
        size = len(string)
        found += [base + end for end in range(size, len(text) + 1) if text[end - size : end] == string]
        base += len(text)
    return found


def longest(texts: Sequence[Text], text: Text, least: int = 1) -> int:
    """Length of its longest suffix that ends in so many places at least."""
    return next((n for n in range(len(text), 0, -1) if len(ends(texts, text[len(text) - n :])) >= least), 0)


@SMALL
@given(TEXTS)
def test_every_string_and_its_count(texts: list[Text]) -> None:
    automaton = automaton_of(texts)
    assert automaton.num_tokens == sum(map(len, texts))
    strings = {tuple(t[i:j]) for t in texts for i in range(len(t)) for j in range(i + 1, len(t) + 1)}
    strings |= {(*string, token) for string in strings for token in range(3)}
    assert all(automaton.count(ids(string)) == len(ends(texts, list(string))) for string in strings)


@SMALL
@given(TEXTS, st.lists(st.integers(0, 3), max_size=30))
def test_the_longest_match_of_another_text(texts: list[Text], text: Text) -> None:
    reader = automaton_of(texts).reader()
    for end in range(1, len(text) + 1):
        reader.advance(ids(text[end - 1 : end]))
        assert reader.match_len == longest(texts, text[:end])


@SMALL
@given(TEXTS, TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_a_reader_outlives_growth(before: list[Text], after: list[Text], text: Text) -> None:
    """States are split under it; what it matched then is matched still, and it reads on in all that is there."""
    automaton = automaton_of(before)
    reader = automaton.reader()
    reader.advance(ids(text[:-1]))
    matched = text[len(text) - 1 - reader.match_len : -1]
    for added in after:
        automaton.begin_text()
        automaton.extend(ids(added))
    reader.advance(ids(text[-1:]))
    assert reader.match_len == longest([*before, *after], matched + text[-1:])


@SMALL
@given(TEXTS)
def test_the_longest_repeated_suffix(texts: list[Text]) -> None:
    assert automaton_of(texts).repeated().match_len == longest(texts, texts[-1], least=2)


@pytest.mark.parametrize("strange", [[], [-1], [-(2**31), 2**31 - 1, 0, -(2**31)], [5] * 3])
def test_any_int32_is_a_token(strange: Text) -> None:
    automaton = automaton_of([strange, strange])
    assert automaton.repeated().match_len == len(strange)
    for token in set(strange):
        assert automaton.count(ids([token])) == 2 * strange.count(token)
    assert automaton.count(ids([7])) == 0


def test_wrong_arrays_are_refused() -> None:
    automaton = automaton_of([[1]])
    for wrong in (np.zeros(2, dtype=np.int64), np.zeros((1, 1), dtype=np.int32), np.zeros(4, dtype=np.int32)[::2]):
        with pytest.raises(TypeError):
            automaton.extend(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bounds"):
        SuffixAutomaton(10)
    with pytest.raises(ValueError, match="worth"):
        grow([automaton.repeated()], [np.zeros(3, dtype=np.float32)], max_nodes=1, max_depth=1, min_score=0.1)


def test_a_million_equal_tokens_take_linear_time() -> None:
    automaton = SuffixAutomaton(256 * MIB)
    many = np.full(1_000_000, 7, dtype=np.int32)
    assert automaton.extend(many) == len(many)
    assert automaton.repeated().match_len == len(many) - 1
    tree = grow([automaton.repeated()], [level(0.9)], max_nodes=16, max_depth=16, min_score=0.1)
    assert tree.token_ids == [7] * 16
    reader = automaton.reader()
    reader.advance(many)
    reader.advance(ids([8]))
    assert reader.match_len == 0


@pytest.mark.parametrize("max_bytes", [4096, 50_000, 1_000_000])
@pytest.mark.parametrize("vocab", [1, 2, 50_000])
def test_memory_is_bounded(max_bytes: int, vocab: int) -> None:
    automaton = SuffixAutomaton(max_bytes)
    text = np.random.default_rng(3).integers(0, vocab, size=60_000, dtype=np.int32)
    taken = 0
    for begin in range(0, len(text), 64):
        taken += (now := automaton.extend(text[begin : begin + 64]))
        assert automaton.num_bytes <= max_bytes
        if now < 64:
            break
    assert automaton.num_tokens == taken >= max_bytes // 250
    assert taken < len(text)
    assert automaton.extend(text[taken : taken + 1]) == 0, "full stays full"
    assert automaton.count(text[max(0, taken - 5) : taken]) >= 1, "what was taken is there"
    tree = grow([automaton.repeated()], [level(0.9)], max_nodes=8, max_depth=8, min_score=0.01)
    assert set(tree.token_ids) <= set(range(vocab))


@pytest.mark.parametrize("seed", range(12))
def test_memory_is_bounded_at_every_token(seed: int) -> None:
    """Small steps of growth: an edge too few in what is reserved once made a vector double beyond the bound."""
    rng = np.random.default_rng(seed)
    automaton = SuffixAutomaton(4096)
    text = rng.integers(0, rng.integers(1, 4), size=200, dtype=np.int32)
    while automaton.extend(text[automaton.num_tokens :][:1]):
        assert automaton.num_bytes <= 4096


def test_a_capped_walk_still_counts_the_longest_contexts() -> None:
    automaton = SuffixAutomaton(MIB, max_walk=2)
    automaton.extend(ids([1] * 100))
    assert automaton.count(ids([1] * 99)) == 2
    assert automaton.count(ids([1])) < 100


def test_grades_are_their_own_buckets() -> None:
    assert [suffix_grade(*grade) for grade in GRADES] == list(range(len(GRADES)))
    assert GRADES[suffix_grade(0, 6, 0.69)] == (0, 5, 0.5)
    assert suffix_grade(1, 10**9, 1.0) == len(GRADES) - 1
    assert suffix_grade(0, 0, -1.0) == 0


def level(rate: float) -> Worth:
    return np.full(len(GRADES), rate, dtype=np.float32)


def rising(seed: int) -> Worth:
    """All different, so that few candidates tie."""
    return np.random.default_rng(seed).uniform(0.2, 1.0, len(GRADES)).astype(np.float32)


def naive_offers(texts: Sequence[Text], text: Text, match_len: int) -> list[tuple[int, int, int]]:
    """(token, grade, latest) after the longest context that was followed, then after the next shorter one."""
    offers: list[tuple[int, int, int]] = []
    seen: set[int] = set()
    order, hops, above = 0, 0, None
    for length in range(match_len, 0, -1):
        context = text[len(text) - length :]
        places = ends(texts, context)
        if places == above:
            continue  # the same class of strings
        above, hops = places, hops + 1
        tokens = sorted({token for t in texts for token in t} - seen)
        counts = {token: found for token in tokens if (found := ends(texts, [*context, token]))}
        total = sum(map(len, counts.values()))
        for token, found in counts.items():
            share = np.float32(len(found)) / (np.float32(total) + np.float32(0.5))
            offers.append((token, suffix_grade(order, length, float(share)), found[-1]))
        seen |= set(counts)
        order += bool(counts)
        if order == 2 or hops == 16:
            break
    return offers


def naive_grow(
    sources: Sequence[tuple[Sequence[Text], Worth]],
    text: Text,
    match_lens: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    min_score: float,
) -> Growth:
    heap: list[tuple[float, int, int, int, int, int]] = []
    tree = Growth([], [], [], [])

    def offer(parent: int, path: Text, lens: Sequence[int], score: np.float32) -> None:
        best: dict[int, tuple[float, int, int, int, int, int]] = {}
        for source, (texts, worth) in enumerate(sources):
            for token, grade, latest in naive_offers(texts, path, lens[source]):
                reached = score * worth[grade]
                entry = (-float(reached), parent, source, -latest, token, grade)
                if reached >= np.float32(min_score) and entry < best.get(token, (1.0, 0, 0, 0, 0, 0)):
                    best[token] = entry
        for entry in best.values():
            heapq.heappush(heap, entry)

    paths: dict[int, Text] = {-1: text}
    offer(-1, text, match_lens, np.float32(1))
    while heap and len(tree.token_ids) < max_nodes:
        score, parent, source, _, token, grade = heapq.heappop(heap)
        node = len(tree.token_ids)
        for items, item in zip(
            (tree.token_ids, tree.parents, tree.sources, tree.grades), (token, parent, source, grade), strict=True
        ):
            items.append(item)
        path = paths[node] = [*paths[parent], token]
        if len(path) - len(text) < max_depth:
            offer(node, path, [longest(texts, path) for texts, _ in sources], np.float32(-score))
    return tree


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 2), max_size=20), st.integers(0, 6), st.integers(1, 4), st.integers(0, 5))
def test_growth_equals_the_naive_one(others: list[Text], own: Text, nodes: int, depth: int, seed: int) -> None:
    """From two sources: the text itself, and texts of others."""
    store, self_made = automaton_of(others), automaton_of([own], one_by_one=True)
    reader = store.reader()
    reader.advance(ids(own))
    readers: list[SuffixReader] = [self_made.repeated(), reader]
    worths = [rising(seed), rising(seed + 100)]
    truth = naive_grow(
        [([own], worths[0]), (others, worths[1])],
        own,
        [longest([own], own, least=2), longest(others, own)],
        max_nodes=nodes,
        max_depth=depth,
        min_score=0.05,
    )
    assert grow(readers, worths, max_nodes=nodes, max_depth=depth, min_score=0.05) == truth


def test_one_continuation_makes_a_chain_and_two_a_branch() -> None:
    chain = automaton_of([[1, 2, 3, 4, 5, 6, 9, 1, 2]])
    tree = grow([chain.repeated()], [level(0.9)], max_nodes=4, max_depth=9, min_score=0.5)
    assert (tree.token_ids, tree.parents) == ([3, 4, 5, 6], [-1, 0, 1, 2])
    fork = automaton_of([[1, 2, 3, 8, 1, 2, 4, 9, 1, 2]])
    tree = grow([fork.repeated()], [level(0.9)], max_nodes=2, max_depth=9, min_score=0.5)
    assert (tree.token_ids, tree.parents) == ([4, 3], [-1, -1]), "the later one first"


def test_ties_and_bounds_of_growth() -> None:
    automaton = automaton_of([[1, 2, 3, 1, 2]])
    empty = Growth([], [], [], [])
    assert grow([], [], max_nodes=5, max_depth=5, min_score=0.1) == empty
    for nodes, depth in ((0, 5), (5, 0), (-1, -1)):
        assert grow([automaton.repeated()], [level(0.9)], max_nodes=nodes, max_depth=depth, min_score=0.1) == empty
    nothing = np.full(len(GRADES), np.nan, dtype=np.float32)
    assert grow([automaton.repeated()], [nothing], max_nodes=5, max_depth=5, min_score=0.1) == empty
    certain = grow([automaton.repeated()], [level(7.0)], max_nodes=50, max_depth=60, min_score=0.0)
    assert len(certain.token_ids) == 50
