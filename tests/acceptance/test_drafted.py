"""Faults that other engines showed under speculation; a scripted drafter stands in until there are real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from offramp.core import DraftAsk, Request, SamplingParams, SequenceKey, TokenTree
from offramp.draft import MAX_NODES
from offramp.draft.plans import FixedPlans
from offramp.engine.engine import Engine
from offramp.engine.taps import Taps
from offramp.llm.loading import load_model
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.batches import chain, pack_rows
from offramp.testing.drafters import Propose, ScriptedDrafter, mixed_chain, random_tree
from offramp.testing.running import Told, run, run_plain
from offramp.testing.tokens import ByteTokenizer
from offramp.testing.toy import ToyFormat, toy_config, toy_source
from tests.draft.weighted import eagle_maker

CONTEXT = 480
FORMATS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
CONFIG = toy_config(num_layers=3, hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2, vocab_size=260)


def executor(weights: ToyFormat = "q8", kv: str = "f16") -> LayerExecutor:
    return build_executor(toy_source(CONFIG, seed=9, weights=weights), kv=kv, num_pages=64, threads=2)


def request(prompt: Sequence[int], name: str = "r", **params: object) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=42,
        eos_token_ids=frozenset(),
    )


def text_ids(text: str) -> list[int]:
    return ByteTokenizer().encode(text)


def lookup(size: int) -> Propose:
    """The tokens that followed the last earlier occurrence of the final pair: what an n-gram drafter would say."""

    def propose(ask: DraftAsk) -> TokenTree:
        ids = list(ask.token_ids)
        for at in range(len(ids) - 3, -1, -1):
            if ids[at : at + 2] == ids[-2:]:
                return TokenTree.chain(ids[at + 2 : at + 2 + size])
        return TokenTree.chain([])

    return propose


def drafted(ask: Request, propose: Propose, k: int, make: Callable[[], LayerExecutor] = executor) -> Told:
    engine = Engine(make(), max_context=CONTEXT, drafter=ScriptedDrafter(propose, max_nodes=k), sample_rows=sample_rows)
    return run(engine, [ask])["r", 0]


def plain(ask: Request, make: Callable[[], LayerExecutor] = executor) -> Told:
    return run_plain(make(), ask, max_context=CONTEXT)["r", 0]


@pytest.mark.real_model
@pytest.mark.parametrize("kv", [pytest.param("f16", marks=pytest.mark.slow), "f32"])
def test_b01_lookup_drafts_on_a_repetitive_prompt_change_no_token(kv: str, default_model_path: Path) -> None:
    loaded = load_model(default_model_path, weights="q8", kv=kv, max_context=CONTEXT, max_num_seqs=1)
    model, prompt = loaded.executor, loaded.tokenizer.encode("serving" * 48)
    ask = request(prompt, temperature=0, top_p=1, seed=42, max_tokens=32)
    told = drafted(ask, lookup(4), 4, lambda: model)
    assert told.token_ids == plain(ask, lambda: model).token_ids
    assert any(size > 1 for size in told.block_lens), "no draft was ever accepted: the test shows nothing"


@pytest.mark.parametrize("max_tokens", [1, 64, None])
def test_b02_trees_equal_plain_decoding_also_at_the_length_limit(max_tokens: int | None) -> None:
    rng = np.random.default_rng(3)
    for length in (5, 40, CONTEXT - 20):
        ask = request(rng.integers(256, size=length).tolist(), temperature=0, max_tokens=max_tokens)
        truth = plain(ask)
        answers: dict[SequenceKey, list[int]] = {("r", 0): truth.token_ids}
        told = drafted(ask, random_tree(answers, 20, 260, seed=length), 20)
        assert (told.token_ids, told.finish_reason) == (truth.token_ids, truth.finish_reason)


@pytest.mark.parametrize("weights", FORMATS)
def test_b07_quantized_weights_with_drafts_give_what_they_give_without(weights: ToyFormat) -> None:
    ask = request(text_ids("user: hi\nbot: hello\nuser: and now?\nbot:"), temperature=0, max_tokens=60)
    truth = plain(ask, lambda: executor(weights))
    answers: dict[SequenceKey, list[int]] = {("r", 0): truth.token_ids}
    told = drafted(ask, mixed_chain(answers, 2, 260, seed=1), 2, lambda: executor(weights))
    assert told.token_ids == truth.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_b08_no_control_token_appears_that_plain_decoding_does_not_draw(temperature: float) -> None:
    begin = 256

    def always_begin(ask: DraftAsk) -> TokenTree:
        return TokenTree.chain([begin] * 5)

    ask = request(text_ids("The future of AI is"), temperature=temperature, max_tokens=10)
    assert drafted(ask, always_begin, 5).token_ids == plain(ask).token_ids


@pytest.mark.parametrize("num_known", [1, 2, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_b68_a_tree_deeper_and_wider_than_the_side_layer_knows_is_cut(num_known: int, temperature: float) -> None:
    """A side layer of few tokens, asked for more ranks than those and for more places than anybody trained."""
    model = executor()
    taps = Taps((1, 2), lambda request: True)
    plans = FixedPlans((), MAX_NODES, keep_price=1e-6)
    eagle = eagle_maker(model, taps, plans, known=range(40, 40 + num_known))()
    engine = Engine(model, max_context=CONTEXT, drafter=eagle, taps=taps, sample_rows=sample_rows)
    asks = [request(text_ids("abc" * size), f"r{size}", temperature=temperature, max_tokens=20) for size in (1, 9)]
    told = run(engine, asks)
    for ask in asks:
        assert (
            told[ask.request_id, 0].token_ids == run_plain(model, ask, max_context=CONTEXT)[ask.request_id, 0].token_ids
        )
    assert engine.statistics.num_draft_tokens > 20


def test_b68_trees_beyond_their_bounds_and_empty_ones_are_cut() -> None:
    """A drafter that knows no bounds: too deep, too wide, or silent."""
    ask = request(text_ids("abc"), temperature=0, max_tokens=9)
    truth = plain(ask).token_ids
    deep = TokenTree.chain(truth[1:] * 4)
    wide = TokenTree(tuple(range(40)), (-1,) * 40)
    for tree in (deep, wide, TokenTree()):
        assert drafted(ask, lambda _, tree=tree: tree, 5).token_ids == truth  # type: ignore[misc]


def test_b48_rejected_drafts_and_the_prefix_cache_leave_no_trace() -> None:
    rng = np.random.default_rng(5)
    shared = text_ids("A common beginning that fills more than one page of thirty-two positions. ")
    prompts = [shared + rng.integers(256, size=n).tolist() for n in range(1, 13)]
    asks = [request(p, f"r{i}", temperature=0.7, max_tokens=20) for i, p in enumerate(prompts)]
    truth = {key: told for ask in asks for key, told in run_plain(executor(), ask, max_context=CONTEXT).items()}
    answers = {key: told.token_ids for key, told in truth.items()}
    for cached in (False, True):
        drafter = ScriptedDrafter(mixed_chain(answers, 4, 260, seed=2), max_nodes=4)
        engine = Engine(executor(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows, prefix_cache=cached)
        for _ in range(2):  # `run` checks pages, fill and debts after every step
            told = run(engine, asks)
            assert {key: t.token_ids for key, t in told.items()} == answers
        assert bool(engine.statistics.num_cached_tokens) == cached


@pytest.mark.parametrize("weights", FORMATS)
def test_b89_logits_of_earlier_positions_ignore_the_last_token(weights: ToyFormat) -> None:
    ids = text_ids("only the last token differs")
    outputs = []
    for last in (1, 200):
        rows = pack_rows(chain([*ids, last]), [range(2)])
        model = executor(weights)
        h = model.run_layers(model.embed(rows), rows, 0, CONFIG.num_layers)
        outputs.append(model.logits(h))
    np.testing.assert_array_equal(outputs[0][:-1], outputs[1][:-1])
    assert (outputs[0][-1] != outputs[1][-1]).any()
