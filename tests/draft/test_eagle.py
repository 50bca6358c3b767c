"""A side layer drafts: what it says is what a fresh run of all places says, and nothing of it touches the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import DraftAsk, DraftParams, Request, Rows, SamplingParams, TokenTree
from offramp.draft import EAGLE, MAX_NODES, Drafters, make_drafter
from offramp.draft.eagle import EagleDrafter
from offramp.draft.pack import DrafterPack
from offramp.draft.plans import Chosen, DraftPlans, FixedPlans
from offramp.draft.side_model import SideModel
from offramp.draft.side_texts import LEAST_PLACES
from offramp.engine.engine import Engine
from offramp.engine.taps import WATCHED, Taps
from offramp.errors import InvalidRequestError, NumericError
from offramp.llm.drafter_pack import native_side
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.batches import chain, pack_rows
from offramp.testing.running import Told, hear, run, run_plain
from offramp.testing.side import random_drafter
from offramp.testing.toy import toy_config, toy_source

VOCAB = 64
CONTEXT = 256
CONFIG = toy_config(num_layers=3, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB)
SOURCE = toy_source(CONFIG, seed=7)
TARGET = build_executor(SOURCE, kv="f16", num_pages=40, threads=1)
PACK = random_drafter(CONFIG, taps=(1, 3))
PROMPT = [(5 * place) % 60 for place in range(37)]


def request(name: str = "r", prompt: Sequence[int] = PROMPT, max_tokens: int = 24, **params: object) -> Request:
    sampling = SamplingParams(max_tokens=max_tokens, logprobs=1, **{"temperature": 0.0, **params})  # type: ignore[arg-type]
    return Request(request_id=name, prompt_token_ids=list(prompt), params=sampling, seed=2)


def drafter_of(
    plans: DraftPlans | None = None, *, pack: DrafterPack = PACK, model: SideModel | None = None
) -> tuple[EagleDrafter, Taps]:
    taps = Taps(pack.config.taps, lambda request: True)
    drafter = EagleDrafter(
        model or native_side(TARGET, pack, TARGET.num_pages),
        taps,
        plans=plans or FixedPlans((), 4),
        sample_rows=sample_rows,
        max_len=MAX_NODES,
    )
    return drafter, taps


def engine_of(drafter: EagleDrafter, taps: Taps, **settings: int | bool) -> Engine:
    return Engine(TARGET, max_context=CONTEXT, drafter=drafter, taps=taps, sample_rows=sample_rows, **settings)  # type: ignore[arg-type]


def check(drafter: EagleDrafter, told: dict[tuple[str, int], Told], asked: Sequence[Request]) -> None:
    for each in asked:
        mine = told[each.request_id, 0]
        alone = run_plain(TARGET, each, max_context=CONTEXT)[each.request_id, 0]
        assert (mine.token_ids, mine.logprobs) == (alone.token_ids, alone.logprobs), each.request_id
    drafter.check_integrity()
    assert drafter.num_used_pages == 0


SAMPLING: list[dict[str, object]] = [
    {},
    {"temperature": 0.9},
    {"repetition_penalty": 1.3},
    {"logit_bias": {5: 3.0}},
    {"min_tokens": 20},
    {"temperature": 0.7, "top_k": 5, "presence_penalty": 0.5},
]


@pytest.mark.parametrize("params", SAMPLING, ids=str)
@pytest.mark.parametrize("ids", [None, np.arange(0, VOCAB, 2, dtype=np.int32)], ids=["all tokens", "half of them"])
def test_outputs_are_those_of_plain_decoding(params: dict[str, object], ids: np.ndarray | None) -> None:
    drafter, taps = drafter_of(pack=random_drafter(CONFIG, taps=(1, 3), vocab_ids=ids))
    engine = engine_of(drafter, taps, max_num_batched_tokens=48)
    asked = [request(f"r{index}", PROMPT[: 37 - 9 * index], 24, **params) for index in range(4)]
    check(drafter, run(engine, asked), asked)
    assert engine.statistics.num_drafts > 20
    assert taps.num_places == 0


class Noting:
    """Writes down what a drafter says to which text."""

    def __init__(self, drafter: EagleDrafter) -> None:
        self._drafter = drafter
        self.max_nodes = drafter.max_nodes
        self.said: list[tuple[list[int], TokenTree]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._drafter, name)

    def propose(self, asks: Sequence[DraftAsk]) -> list[TokenTree]:
        trees = self._drafter.propose(asks)
        self.said += [(ask.token_ids.tolist(), tree) for ask, tree in zip(asks, trees, strict=True) if len(tree)]
        return trees


def fresh_chain(text: Sequence[int], length: int, base: int = 0) -> list[int]:
    """Greedy drafts behind a text: all places from `base` on run anew."""
    model = native_side(TARGET, PACK, 10)
    rows = pack_rows(chain(list(text[:-1])), [range(8)])
    h, depth, states = TARGET.embed(rows), 0, []
    for layer in PACK.config.taps:
        h, depth = TARGET.run_layers(h, rows, depth, layer), layer
        states.append(h.numpy())
    seen = np.ascontiguousarray(np.stack(states, axis=1)[base:])
    own, _ = model.run_first(_rows(text[base + 1 :], 0), seen, np.array([len(seen) - 1], np.int32))
    tokens: list[int] = []
    while True:
        tokens.append(int(model.executor.top(own, 1, model.head).ids[0, 0]))
        if len(tokens) == length:
            return tokens
        own, _ = model.run_next(_rows(tokens[-1:], len(text) - base - 2 + len(tokens)), own)


def _rows(tokens: Sequence[int], start: int) -> Rows:
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    pages = [np.arange(8, dtype=np.int32)]
    return Rows.plain(np.array(tokens, np.int32), np.zeros(len(tokens), np.int32), positions, pages)


def test_drafts_are_those_of_a_fresh_run_whatever_stood_before() -> None:
    """So K/V of rejected drafts, and of those that stood without their states, leave no trace."""
    drafter, taps = drafter_of()
    noting = Noting(drafter)
    engine = engine_of(noting, taps, prefix_cache=False)  # type: ignore[arg-type]
    run(engine, [request("a"), request("b", PROMPT[:6]), request("c", PROMPT[3:20])])
    assert len(noting.said) > 30
    for text, tree in noting.said[::3]:
        assert tree.is_chain
        assert list(tree.token_ids) == fresh_chain(text, len(tree)), text
    statistics = engine.statistics
    assert 0 < statistics.num_accepted_tokens < statistics.num_draft_tokens


def test_greedy_texts_among_drawn_ones_are_drafted_as_alone() -> None:
    drafter, taps = drafter_of()
    noting = Noting(drafter)
    engine = engine_of(noting, taps, prefix_cache=False)  # type: ignore[arg-type]
    greedy, drawn = [PROMPT, PROMPT[3:20]], [PROMPT[1:12], PROMPT[5:30]]
    asked = [request(f"g{index}", prompt) for index, prompt in enumerate(greedy)]
    asked[1:1] = [request(f"d{index}", prompt, temperature=0.9) for index, prompt in enumerate(drawn)]
    check(drafter, run(engine, asked), asked)
    said = [(text, tree) for text, tree in noting.said if any(text[: len(prompt)] == prompt for prompt in greedy)]
    assert 20 < len(said) < len(noting.said) - 20
    for text, tree in said[::3]:
        assert list(tree.token_ids) == fresh_chain(text, len(tree)), text


@pytest.mark.parametrize("length", [37, 39, 41])
def test_behind_a_cached_prefix_drafts_are_those_of_what_ran(length: int) -> None:
    """Of few places nothing is said, be it that they ran together or in a call each; of more it is."""
    drafter, taps = drafter_of()
    engine = engine_of(drafter, taps)
    prompt = [*PROMPT, 3, 9, 27, 1][:length]
    run(engine, [request("a", prompt)])
    noting = Noting(drafter)
    engine._speculation._drafter = noting  # type: ignore[assignment]
    run(engine, [request("b", prompt)])
    assert drafter.max_nodes, "it failed"
    assert min(len(text) for text, _ in noting.said) == max(length, 32 + LEAST_PLACES) + 1
    for text, tree in noting.said[::3]:
        assert list(tree.token_ids) == fresh_chain(text, len(tree), base=32), text


class NowAndThen(FixedPlans):
    """No drafts for a while, then some, then none again."""

    def __init__(self) -> None:
        super().__init__((), 3)
        self._steps = 0

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        self._steps += 1
        return super().choose(asks) if self._steps // 4 % 2 else Chosen()


def test_a_drafter_that_was_not_asked_for_a_while_catches_up() -> None:
    drafter, taps = drafter_of(NowAndThen())
    noting = Noting(drafter)
    engine = engine_of(noting, taps)  # type: ignore[arg-type]
    asked = [request("a", max_tokens=40)]
    check(drafter, run(engine, asked), asked)
    assert len(noting.said) > 8
    for text, tree in noting.said:
        assert list(tree.token_ids) == fresh_chain(text, len(tree)), text


class LongPause(FixedPlans):
    """Some drafts, none for longer than anybody watches, then drafts again."""

    PAUSE = range(6, 6 + WATCHED + 9)

    def __init__(self) -> None:
        super().__init__((), 3)
        self._steps = 0
        self.resumed_at = 0

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        self._steps += 1
        if self._steps in self.PAUSE:
            return Chosen()
        if self._steps == self.PAUSE.stop:
            self.resumed_at = len(asks[0].token_ids)
        return super().choose(asks)


def test_behind_a_hole_it_begins_anew_once_it_has_seen_enough() -> None:
    plans = LongPause()
    drafter, taps = drafter_of(plans)
    noting = Noting(drafter)
    engine = engine_of(noting, taps)  # type: ignore[arg-type]
    asked = [request("a", max_tokens=90)]
    check(drafter, run(engine, asked), asked)
    assert plans.resumed_at > 0
    base = plans.resumed_at - 1
    later = [(text, tree) for text, tree in noting.said if len(text) >= plans.resumed_at]
    assert len(later) > 8
    assert len(later[0][0]) == base + LEAST_PLACES + 1
    for text, tree in later[::2]:
        assert list(tree.token_ids) == fresh_chain(text, len(tree), base=base), text


class Choosy(FixedPlans):
    """Leaves are worth their rows."""

    def choose(self, asks: Sequence[DraftAsk]) -> Chosen:
        chosen = super().choose(asks)
        return replace(chosen, plan=replace(chosen.plan, keep_price=1e-4))


def test_the_second_likeliest_joins_as_a_leaf() -> None:
    drafter, taps = drafter_of(Choosy((), 3))
    noting = Noting(drafter)
    engine = engine_of(noting, taps)  # type: ignore[arg-type]
    asked = [request("a", max_tokens=60), request("b", PROMPT[:7], 60)]
    check(drafter, run(engine, asked), asked)
    trees = [tree for _, tree in noting.said if len(tree) == 6]
    assert len(trees) > 10
    for tree in trees:
        assert tree.parents == (-1, 0, 1, -1, 0, 1)
        assert all(tree.token_ids[place] != tree.token_ids[3 + place] for place in range(3))
    bounded = replace(request("c"), drafting=DraftParams(max_draft=4))
    noting.said.clear()
    engine = engine_of(noting, taps)  # type: ignore[arg-type]
    check(drafter, run(engine, [bounded]), [bounded])
    assert noting.said[0][1].parents == (-1, 0, 1, -1)
    assert max(len(tree) for _, tree in noting.said) == 4


class Failing:
    """A side layer's executor that fails when told to."""

    def __init__(self, model: SideModel) -> None:
        self._executor = model.executor
        self.how: str | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def run_joined(self, *args):  # type: ignore[no-untyped-def]
        if self.how == "raises":
            raise NumericError("bad", hint="none")
        if self.how == "memory":
            raise MemoryError("none left")
        own, guesses = self._executor.run_joined(*args)
        spoilt = self.how == "spoils"
        return own, [[(token, np.nan) for token, _ in row] for row in guesses] if spoilt else guesses


@pytest.mark.parametrize("how", ["raises", "memory", "spoils"])
def test_a_failing_side_layer_is_dropped_and_requests_go_on(how: str, caplog: pytest.LogCaptureFixture) -> None:
    model = native_side(TARGET, PACK, TARGET.num_pages)
    failing = Failing(model)
    drafter, taps = drafter_of(model=replace(model, executor=failing))  # type: ignore[arg-type]
    engine = engine_of(drafter, taps)
    asked = [request("r"), request("s", PROMPT[:20])]
    for each in asked:
        engine.add_request(each)
    told: dict[tuple[str, int], Told] = {}
    for step in range(3):
        hear(engine, told)
        failing.how = how if step == 2 else None
    while engine.has_work:
        hear(engine, told)
    check(drafter, told, asked)
    assert engine.statistics.num_drafts > 0
    assert drafter.max_nodes == 0
    assert caplog.text.count("the eagle drafter failed and drafts no more") == 1


def test_too_few_pages_go_to_those_asked_about_last() -> None:
    drafter, taps = drafter_of(model=native_side(TARGET, PACK, 3))
    engine = engine_of(drafter, taps, max_num_seqs=8)
    asked = [request(f"r{index}", PROMPT[: 20 + index]) for index in range(6)]
    check(drafter, run(engine, asked), asked)
    assert engine.statistics.num_drafts > 0


def test_it_joins_others_as_one_tree() -> None:
    drafter, taps = drafter_of()
    drafters = Drafters(makers={EAGLE: lambda: drafter})
    engine = Engine(
        TARGET,
        max_context=CONTEXT,
        drafter=make_drafter("eagle,suffix", drafters),
        taps=taps,
        sample_rows=sample_rows,
    )
    asked = [request("r", PROMPT * 2, 40)]
    check(drafter, run(engine, asked), asked)


def test_without_a_pack_it_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="'eagle' needs a drafter pack"):
        make_drafter("eagle,suffix")
