"""Hidden states taken along a step are those of one plain prefill, for committed places alone, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import DraftAsk, DraftParams, Request, SamplingParams, TokenTree
from offramp.engine import taps as module
from offramp.engine.engine import Engine
from offramp.engine.taps import Taps
from offramp.native import build_executor
from offramp.native.executor import NativeExecutor
from offramp.native.sampling import sample_rows
from offramp.testing.batches import chain, pack_rows
from offramp.testing.running import drain, run_plain
from offramp.testing.toy import toy_config, toy_source

CONFIG = toy_config(hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1, vocab_size=64, num_layers=4)
SOURCE = toy_source(CONFIG, seed=3, weights="q8")
DEPTHS = (1, 3, 4)


def target(num_pages: int = 32) -> NativeExecutor:
    return build_executor(SOURCE, num_pages=num_pages, threads=1)


class Listening:
    """Takes what there is at each ask, and drafts what it is told to: trees by the number of tokens so far."""

    def __init__(self, taps: Taps, trees: Mapping[int, TokenTree] | None = None, every: int = 1) -> None:
        self.taps = taps
        self.trees = trees or {}
        self.every = every
        self.max_nodes = 8
        self.heard: dict[object, list[tuple[int, np.ndarray]]] = {}
        self.texts: dict[object, list[int]] = {}

    def propose(self, asks: Sequence[DraftAsk]) -> list[TokenTree]:
        for ask in asks:
            if len(ask.token_ids) % self.every == 0:
                seen = self.taps.take(ask.key, len(ask.token_ids) - 1)
                if seen is not None:
                    self.heard.setdefault(ask.key, []).append((seen.first, seen.states))
                    self.texts[ask.key] = ask.token_ids.tolist()
        return [self.trees.get(len(ask.token_ids), TokenTree()) for ask in asks]

    def observe(self, *_: object) -> None: ...

    def forget(self, _: object) -> None: ...


def request(name: str, prompt: Sequence[int], max_tokens: int = 12, drafter: str = "eagle") -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(temperature=0, max_tokens=max_tokens),
        seed=1,
        drafting=DraftParams(drafter=drafter),
    )


def wants(request: Request) -> bool:
    return request.drafting.drafter == "eagle"


def engine_of(listening: Listening, **settings: int | bool) -> Engine:
    num_pages = int(settings.pop("num_pages", 32))
    return Engine(
        target(num_pages), max_context=256, drafter=listening, sample_rows=sample_rows, taps=listening.taps, **settings  # type: ignore[arg-type]
    )  # fmt: skip


def plain_states(text: Sequence[int]) -> np.ndarray:
    """[places, taps, hidden]"""
    executor = target()
    rows = pack_rows(chain(list(text)), [range(8)])
    h, depth, found = executor.embed(rows), 0, []
    for layer in DEPTHS:
        h, depth = executor.run_layers(h, rows, depth, layer), layer
        found.append(h.numpy())
    return np.stack(found, axis=1)


def check(listening: Listening, key: tuple[str, int], firsts: Sequence[int] | None = None) -> None:
    heard, text = listening.heard[key], listening.texts[key]
    truth = plain_states(text)
    for first, states in heard:
        np.testing.assert_array_equal(states, truth[first : first + len(states)])
    assert heard[-1][0] + len(heard[-1][1]) == len(text) - 1
    if firsts is not None:
        assert [first for first, _ in heard] == list(firsts)


PROMPT = [(7 * place) % 60 for place in range(40)]


def test_each_place_comes_once(rng: np.random.Generator) -> None:
    listening = Listening(Taps(DEPTHS, wants))
    engine = engine_of(listening)
    engine.add_request(request("r", PROMPT))
    drain(engine)
    check(listening, ("r", 0), [0, *range(40, 49)])
    assert listening.taps.num_places == 0
    assert not listening.taps._kept


def test_chunks_and_neighbours() -> None:
    listening = Listening(Taps(DEPTHS, wants), every=3)
    engine = engine_of(listening, max_num_batched_tokens=16)
    asked = [request("a", PROMPT), request("b", PROMPT[:5]), request("c", PROMPT[:9], drafter="other")]
    for each in asked:
        engine.add_request(each)
    drain(engine)
    assert listening.heard.keys() == {("a", 0), ("b", 0)}
    check(listening, ("a", 0))
    check(listening, ("b", 0))
    assert listening.heard["a", 0][0][0] == 0


def test_drafts_count_where_they_stand() -> None:
    """A chain, a tree whose second branch stands, and one that is wrong from the start."""
    [told] = run_plain(target(), request("r", PROMPT, 20), max_context=256).values()
    a = told.token_ids
    wrong = (a[7] + 1) % 64
    trees = {
        42: TokenTree((a[2], a[3], wrong), (-1, 0, 1)),
        45: TokenTree((wrong, a[5], wrong, a[6], a[7]), (-1, -1, 0, 1, 3)),
        50: TokenTree(((a[10] + 1) % 64,), (-1,)),
    }
    listening = Listening(Taps(DEPTHS, wants), trees)
    engine = engine_of(listening)
    engine.add_request(request("r", PROMPT, 20))
    again = drain(engine)["r", 0]
    assert again.token_ids == a
    assert engine.statistics.num_accepted_tokens == 2 + 3
    check(listening, ("r", 0))
    assert [first for first, _ in listening.heard["r", 0]] == [0, 40, 41, 44, 48, *range(49, 57)]


def test_a_cached_prefix_has_no_states() -> None:
    listening = Listening(Taps(DEPTHS, wants))
    engine = engine_of(listening)
    for name in ("r", "s"):
        engine.add_request(request(name, PROMPT))
        drain(engine)
    check(listening, ("s", 0), [32, *range(40, 49)])


def test_preempted_places_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 256)
    listening = Listening(Taps(DEPTHS, wants))
    engine = engine_of(listening, num_pages=5, max_num_seqs=2, prefix_cache=False)
    asked = [request("a", PROMPT, 40), request("b", PROMPT[:30], 60)]
    for each in asked:
        engine.add_request(each)
    drain(engine)
    assert engine.statistics.num_preemptions > 0
    check(listening, ("a", 0))
    check(listening, ("b", 0))
    assert [first for first, _ in listening.heard["b", 0]].count(0) == 2


def test_of_a_long_prompt_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 10)
    listening = Listening(Taps(DEPTHS, wants))
    engine = engine_of(listening, max_num_batched_tokens=16)
    engine.add_request(request("r", PROMPT))
    drain(engine)
    check(listening, ("r", 0))
    assert [len(states) for _, states in listening.heard["r", 0]][:2] == [18, 1], "10 of a chunk, then the 8 behind it"
    deaf = Listening(Taps(DEPTHS, wants), every=1000)
    engine = engine_of(deaf)
    engine.add_request(request("r", PROMPT, 60))
    while engine.has_work:
        engine.step()
        assert deaf.taps.num_places <= 20


class Counting:
    """Notes which layers its calls run."""

    def __init__(self) -> None:
        self._executor = target()
        self.calls: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def run_layers(self, h, rows, start, stop):  # type: ignore[no-untyped-def]
        self.calls.append((start, stop))
        return self._executor.run_layers(h, rows, start, stop)


CUT = [(0, 1), (1, 3), (3, 4)]


def test_nothing_is_cut_where_nobody_looks() -> None:
    listening, counting = Listening(Taps(DEPTHS, wants)), Counting()
    engine = Engine(counting, max_context=256, drafter=listening, taps=listening.taps)  # type: ignore[arg-type]
    engine.add_request(request("r", PROMPT, drafter="other"))
    drain(engine)
    assert set(counting.calls) == {(0, 4)}
    engine.add_request(replace(request("s", PROMPT)))
    drain(engine)
    assert set(counting.calls) == {(0, 4), *CUT}


def test_a_sequence_that_nobody_asks_about_is_left_alone_until_somebody_does() -> None:
    listening, counting = Listening(Taps(DEPTHS, wants), every=1 << 20), Counting()
    taps = listening.taps
    engine = Engine(counting, max_context=256, drafter=listening, taps=taps)  # type: ignore[arg-type]
    engine.add_request(request("r", PROMPT, 90))
    for _ in range(module.WATCHED):
        engine.step()
    assert counting.calls == CUT * module.WATCHED
    counting.calls.clear()
    for _ in range(9):
        engine.step()
    assert counting.calls == [(0, 4)] * 9
    assert taps.num_places == 0
    num_tokens = len(PROMPT) + module.WATCHED + 9
    taps.watch(("r", 0))
    counting.calls.clear()
    for _ in range(5):
        engine.step()
    assert counting.calls == CUT * 5
    seen = taps.take(("r", 0), num_tokens + 5 - 1)
    assert seen is not None
    assert (seen.first, len(seen.states)) == (num_tokens - 1, 5), "what ran unseen is a hole"
    drain(engine)
    assert not taps._left


def test_new_sequences_are_looked_at_where_that_is_expected_to_be_of_use() -> None:
    listening, counting = Listening(Taps(DEPTHS, wants), every=1 << 20), Counting()
    engine = Engine(counting, max_context=256, drafter=listening, taps=listening.taps)  # type: ignore[arg-type]
    listening.taps.expect(False)
    engine.add_request(request("r", PROMPT, 6))
    drain(engine)
    assert set(counting.calls) == {(0, 4)}
    listening.taps.expect(True)
    engine.add_request(request("s", PROMPT[1:], 6))
    drain(engine)
    assert counting.calls[-3:] == CUT


def test_chunks_of_a_prompt_are_no_steps_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCHED", 3)
    listening = Listening(Taps(DEPTHS, wants))
    engine = engine_of(listening, max_num_batched_tokens=2)
    engine.add_request(request("r", PROMPT))
    drain(engine)
    check(listening, ("r", 0), [0, *range(40, 49)])
