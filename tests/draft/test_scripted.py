"""Speculative output equals plain output, token for token, for drafters from perfect to useless: chains and trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from offramp.core import DraftAsk, Request, SamplingParams, SequenceKey, TokenTree
from offramp.engine.engine import Engine
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.testing.drafters import (
    Propose,
    ScriptedDrafter,
    mixed_chain,
    never,
    oracle_chain,
    random_tree,
    wrong_chain,
)
from offramp.testing.running import Told, run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.toy import toy_config, toy_source

VOCAB = 260
CONTEXT = 128
TOY = toy_source(
    toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1), seed=5, weights="q8"
)
Answers = dict[SequenceKey, list[int]]
SIZES = (1, 3, 4, 7, 8, 12, 16, 64)
HOT = [pytest.param(k, 1.0, marks=pytest.mark.slow) for k in (3, 4, 8, 12, 16)]
KINDS: dict[str, Callable[[Answers, int], Propose]] = {
    "never": lambda answers, k: never,
    "oracle": oracle_chain,
    "wrong": lambda answers, k: wrong_chain(answers, k, VOCAB),
    "mixed": lambda answers, k: mixed_chain(answers, k, VOCAB, 1),
    "tree": lambda answers, k: random_tree(answers, k, VOCAB, 2),
}


def scripted() -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=16)


def native() -> LayerExecutor:
    return build_executor(TOY, num_pages=16, threads=1)


def ask(prompt: Sequence[int] = (1, 2, 3), *, eos: Sequence[int] = (), **params: object) -> Request:
    return Request(
        request_id="r",
        prompt_token_ids=list(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=42,
        eos_token_ids=frozenset(eos),
    )


def plain(request: Request, make: Callable[[], LayerExecutor] = scripted, context: int = CONTEXT) -> Told:
    return run_plain(make(), request, max_context=context)["r", 0]


def drafted(
    request: Request,
    propose: Propose,
    k: int,
    make: Callable[[], LayerExecutor] = scripted,
    context: int = CONTEXT,
) -> tuple[Told, Engine, ScriptedDrafter]:
    drafter = ScriptedDrafter(propose, max_nodes=k)
    engine = Engine(make(), max_context=context, drafter=drafter)
    return run(engine, [request])["r", 0], engine, drafter


def same(mine: Told, truth: Told) -> None:
    assert mine.token_ids == truth.token_ids
    assert (mine.finish_reason, mine.logprobs) == (truth.finish_reason, truth.logprobs)


@pytest.mark.parametrize(("k", "temperature"), [*((k, 0.0) for k in SIZES), (1, 1.0), (7, 1.0), (64, 1.0), *HOT])
@pytest.mark.parametrize("kind", KINDS)
def test_scripted_model_any_draft_length_b47(kind: str, k: int, temperature: float) -> None:
    request = ask(temperature=temperature, max_tokens=30, logprobs=1, repetition_penalty=1.2)
    truth = plain(request)
    mine, engine, drafter = drafted(request, KINDS[kind]({("r", 0): truth.token_ids}, k), k)
    same(mine, truth)
    assert all(len(tree) <= k for tree, _ in drafter.verdicts)
    assert drafter.forgotten == [("r", 0)]
    statistics = engine.statistics
    assert statistics.num_accepted_tokens <= statistics.num_draft_tokens
    if kind == "oracle":
        assert statistics.num_accepted_tokens == statistics.num_draft_tokens > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_real_layers_bitwise(kind: str, temperature: float) -> None:
    request = ask(temperature=temperature, max_tokens=24, logprobs=3)
    truth = plain(request, native)
    mine, engine, _ = drafted(request, KINDS[kind]({("r", 0): truth.token_ids}, 16), 16, native)
    same(mine, truth)
    if kind == "tree":
        assert engine.statistics.num_accepted_tokens > 0


def test_oracle_drafts_bring_k_plus_one_tokens_a_step_b111_b116() -> None:
    request = ask(temperature=0.0, max_tokens=21)
    mine, engine, _ = drafted(request, oracle_chain({("r", 0): plain(request).token_ids}, 4), 4)
    assert mine.block_lens == [5, 5, 5, 5, 1]
    assert engine.statistics.acceptance_rate == 1.0
    assert engine.statistics.mean_acceptance_length == 5.0


@pytest.mark.parametrize("place", [0, 1, 5, 7, 8])
@pytest.mark.parametrize("kind", ["oracle", "tree"])
def test_end_token_inside_an_accepted_block_b30_b35(kind: str, place: int) -> None:
    free = ask(temperature=0.0, max_tokens=30)
    answer = plain(free).token_ids
    request = replace(free, eos_token_ids=frozenset({answer[place], 259}))
    mine, engine, _ = drafted(request, KINDS[kind]({("r", 0): answer}, 8), 8)
    first = answer.index(answer[place])
    assert mine.token_ids == answer[: first + 1]
    assert mine.finish_reason == "stop"
    same(mine, plain(request))
    assert engine.statistics.num_used_pages == 0


def test_a_rejected_end_token_ends_nothing_b34() -> None:
    request = ask(temperature=0.0, max_tokens=12, eos=(259,))
    truth = plain(request)

    def propose(draft: DraftAsk) -> TokenTree:
        begin = len(draft.token_ids) - draft.prompt_len
        return TokenTree.chain([*truth.token_ids[begin : begin + 1], 259])

    mine, _, _ = drafted(request, propose, 2)
    same(mine, truth)
    assert mine.finish_reason == "length"


@pytest.mark.parametrize("kind", ["oracle", "tree"])
@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_drafts_never_run_past_max_tokens_b32(max_tokens: int, kind: str) -> None:
    answer = plain(ask(temperature=0.0, max_tokens=30)).token_ids
    request = ask(temperature=0.0, max_tokens=max_tokens)
    mine, _, _ = drafted(request, KINDS[kind]({("r", 0): answer}, 8), 8)
    assert mine.token_ids == answer[:max_tokens]
    assert mine.finish_reason == "length"


@pytest.mark.parametrize("kind", ["oracle", "wrong", "tree"])
def test_drafts_never_run_past_the_context_b42(kind: str) -> None:
    request = ask(range(58), temperature=0.0, max_tokens=10)
    truth = plain(request, context=64)
    assert len(truth.token_ids) == 6
    mine, _, _ = drafted(request, KINDS[kind]({("r", 0): truth.token_ids}, 5), 5, context=64)
    same(mine, truth)
    assert mine.finish_reason == "length"


def test_unknown_ids_are_never_run_b65() -> None:
    request = ask(temperature=0.0, max_tokens=8)
    truth = plain(request)
    mine, _, drafter = drafted(request, lambda _: TokenTree.chain([9999, 1]), 2)
    same(mine, truth)
    assert not any(tree for tree, _ in drafter.verdicts), "cleaned away before anyone hears of them"


def test_sequences_accepting_different_numbers_keep_apart_b49() -> None:
    requests = [
        Request(request_id=name, prompt_token_ids=[i] * (5 * i + 1), params=SamplingParams(max_tokens=40), seed=i)
        for i, name in enumerate(["all", "none", "some"])
    ]
    truth: dict[SequenceKey, Told] = {}
    for request in requests:
        truth |= run_plain(scripted(), request, max_context=CONTEXT)
    answers = {key: told.token_ids for key, told in truth.items()}
    kinds = {"all": oracle_chain(answers, 6), "none": wrong_chain(answers, 6, VOCAB)}
    other = random_tree(answers, 6, VOCAB, 3)
    drafter = ScriptedDrafter(lambda a: kinds.get(a.key[0], other)(a), max_nodes=6)
    told = run(Engine(scripted(), max_context=CONTEXT, drafter=drafter), requests)
    assert {key: t.token_ids for key, t in told.items()} == answers


def test_drafts_take_only_pages_that_nobody_wants() -> None:
    request = ask(range(30), temperature=0.0, max_tokens=30)
    truth = plain(request)
    drafter = ScriptedDrafter(oracle_chain({("r", 0): truth.token_ids}, 64), max_nodes=64)
    engine = Engine(ScriptedModel(mixing(), num_pages=2), max_context=64, drafter=drafter)
    same(run(engine, [request])["r", 0], truth)
    assert engine.statistics.num_preemptions == 0
    assert engine.statistics.num_accepted_tokens > 0


def test_a_prompt_that_fills_the_budget_leaves_no_room_for_drafts() -> None:
    request = ask(range(40), temperature=0.0, max_tokens=9)
    truth = plain(request)
    drafter = ScriptedDrafter(oracle_chain({("r", 0): truth.token_ids}, 4), max_nodes=4)
    engine = Engine(scripted(), max_context=CONTEXT, max_num_batched_tokens=1, max_num_seqs=1, drafter=drafter)
    same(run(engine, [request])["r", 0], truth)
    assert engine.statistics.num_draft_tokens == 0


def test_scratch_pages_of_rejected_drafts_come_back_at_once() -> None:
    request = ask(temperature=0.0, max_tokens=100)
    answers = {("r", 0): plain(request).token_ids}
    engine = Engine(
        scripted(), max_context=CONTEXT, drafter=ScriptedDrafter(wrong_chain(answers, 64, VOCAB), max_nodes=64)
    )
    engine.add_request(request)
    for _ in range(5):
        engine.step()
    assert engine.statistics.num_draft_tokens >= 4 * 64
    assert engine.statistics.num_used_pages == 1
