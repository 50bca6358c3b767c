"""A drafter that knows the answer: whole blocks, acceptance of exactly one, and counts by position that agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from offramp.core import DraftAsk, DraftParams, Request, SamplingParams, SequenceKey, TokenEvent, TokenTree
from offramp.draft import make_drafter
from offramp.engine.engine import Engine
from offramp.llm.llm import LLM
from offramp.llm.serving import Serving
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.params import RequestOptions
from offramp.testing.drafters import Propose, ScriptedDrafter, never, oracle_chain
from offramp.testing.models import chat_tokenizer, loaded_model, says, scripted_model
from offramp.testing.running import run, run_plain
from offramp.testing.scripted import Script, ScriptedModel, mixing, peak
from offramp.testing.toy import toy_config, toy_source

VOCAB = 260
CONTEXT = 128
NUM_BLOCKS = 3
LENGTHS = [k if k in (1, 2, 3, 5, 8, 15, 16) else pytest.param(k, marks=pytest.mark.slow) for k in range(1, 17)]
MODEL = build_executor(
    toy_source(toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1), seed=5),
    kv="f16",
    num_pages=8,
    threads=1,
)
Answers = dict[SequenceKey, list[int]]


def scripted() -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=8)


def native() -> LayerExecutor:
    return MODEL


def request(max_tokens: int, temperature: float = 0.0, name: str = "r") -> Request:
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, logprobs=1)
    return Request(request_id=name, prompt_token_ids=[1, 2, 3], params=params, seed=8)


def engine_of(make: Callable[[], LayerExecutor], propose: Propose, max_nodes: int) -> Engine:
    drafter = ScriptedDrafter(propose, max_nodes=max_nodes)
    return Engine(make(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows)


def hidden_path(answers: Answers, k: int) -> Propose:
    """The right chain as one path: before each of its nodes stands a wrong sibling with a wrong child."""

    def propose(ask: DraftAsk) -> TokenTree:
        begin = len(ask.token_ids) - ask.prompt_len
        tokens: list[int] = []
        parents: list[int] = []
        right = -1
        for token in answers[ask.key][begin : begin + k]:
            wrong = len(tokens)
            tokens += [(token + 1) % VOCAB, token, token]
            parents += [right, wrong, right]
            right = wrong + 2
        return TokenTree(tuple(tokens), tuple(parents))

    return propose


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("make", [scripted, native])
@pytest.mark.parametrize("k", LENGTHS)
def test_a_known_chain_brings_k_plus_one_tokens_a_step_b111_b116(
    k: int, make: Callable[[], LayerExecutor], temperature: float
) -> None:
    asked = request(NUM_BLOCKS * (k + 1), temperature)
    truth = run_plain(make(), asked, max_context=CONTEXT)["r", 0]
    engine = engine_of(make, oracle_chain({("r", 0): truth.token_ids}, k), k)
    told = run(engine, [asked])["r", 0]
    assert (told.token_ids, told.logprobs) == (truth.token_ids, truth.logprobs)
    assert told.block_lens == [k + 1] * NUM_BLOCKS
    statistics = engine.statistics
    assert statistics.acceptance_rate == 1.0
    assert statistics.mean_acceptance_length == k + 1
    assert (statistics.num_steps, statistics.num_drafts) == (NUM_BLOCKS, NUM_BLOCKS)
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens == NUM_BLOCKS * k
    each = dict.fromkeys(range(k), NUM_BLOCKS)
    assert statistics.num_draft_tokens_per_pos == statistics.num_accepted_tokens_per_pos == each
    assert statistics.num_rows == 3 + NUM_BLOCKS * (k + 1) - 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("make", [scripted, native])
@pytest.mark.parametrize("k", LENGTHS)
def test_a_known_path_of_a_tree_does_too(k: int, make: Callable[[], LayerExecutor], temperature: float) -> None:
    asked = request(NUM_BLOCKS * (k + 2), temperature)  # room for the wrong nodes too, which are one deeper
    truth = run_plain(make(), asked, max_context=CONTEXT)["r", 0]
    engine = engine_of(make, hidden_path({("r", 0): truth.token_ids}, k), 3 * k)
    told = run(engine, [asked])["r", 0]
    assert (told.token_ids, told.logprobs) == (truth.token_ids, truth.logprobs)
    assert told.block_lens[:NUM_BLOCKS] == [k + 1] * NUM_BLOCKS


def test_counts_by_position_of_a_tree() -> None:
    k, asked = 4, request(10)
    truth = run_plain(scripted(), asked, max_context=CONTEXT)["r", 0]
    engine = engine_of(scripted, hidden_path({("r", 0): truth.token_ids}, k), 12)
    told = run(engine, [asked])["r", 0]
    assert told.block_lens == [5, 5]
    statistics = engine.statistics
    # the second draft ends with the answer: nodes deeper than the four tokens that it can add are cut off
    assert statistics.num_draft_tokens_per_pos == {0: 4, 1: 6, 2: 6, 3: 6, 4: 1}
    assert statistics.num_accepted_tokens_per_pos == {0: 2, 1: 2, 2: 2, 3: 2}
    assert statistics.num_draft_tokens == 23
    assert statistics.acceptance_rate == 8 / 23


def test_no_rate_before_any_draft_b113() -> None:
    engine = engine_of(scripted, never, 4)
    for _ in range(2):
        statistics = engine.statistics
        assert (statistics.acceptance_rate, statistics.mean_acceptance_length) == (0.0, 0.0)
        assert (statistics.num_drafts, statistics.num_draft_tokens) == (0, 0)
        run(engine, [request(5)])


@pytest.mark.parametrize("end", [0, 1, 3, 4, 5, 7])
def test_drafts_behind_the_end_are_not_accepted(end: int) -> None:
    """They were right, and never became output: accepted tokens are part of those generated, as events tell them."""
    asked = request(20)
    truth = run_plain(scripted(), asked, max_context=CONTEXT)["r", 0]
    ending = replace(asked, eos_token_ids=frozenset({truth.token_ids[end]}))
    engine = engine_of(scripted, oracle_chain({("r", 0): truth.token_ids}, 4), 4)
    events = []
    engine.add_request(ending)
    while engine.has_work:
        events += engine.step()
    assert [token for event in events for token in event.token_ids] == truth.token_ids[: end + 1]
    statistics = engine.statistics
    told = sum(event.draft.num_accepted for event in events if event.draft is not None)
    assert statistics.num_accepted_tokens == told == end + 1 - (end + 1) // 5
    assert statistics.num_accepted_tokens_per_pos.total() == told
    assert statistics.num_drafts == statistics.num_steps
    assert statistics.mean_acceptance_length == (end + 1) / statistics.num_steps  # no bonus behind the end


@pytest.mark.parametrize(("stop", "num_tokens"), [("h", 8), ("j", 10), ("k", 11), ("nothing", 27)])
def test_the_mean_length_is_what_drafted_steps_commit(stop: str, num_tokens: int) -> None:
    """Blocks of five, of which the last is cut by a stop string, or by the end token behind the text."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    llm = LLM.from_loaded(scripted_model(says(("say ", letters))), Serving(draft_length="fixed", max_draft=4))
    options = RequestOptions(draft="reference", references=("say " + letters,))
    [output] = llm.generate("say ", SamplingParams(temperature=0, stop=(stop,)), options)
    assert len(output.outputs[0].token_ids) == num_tokens
    num_steps = -(-num_tokens // 5)
    for told in (output.report, llm.statistics):
        assert (told.num_drafts, told.num_emitted_tokens) == (num_steps, num_tokens)
        assert told.mean_acceptance_length == num_tokens / num_steps


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "ngram,suffix", "auto"])
def test_every_door_counts_the_same_b127(drafter: str) -> None:
    """The engine's counters, a request's events and its report agree, and so do two engines."""
    sentence = chat_tokenizer().encode("Repeat this sentence for 50 times. ")
    prompt = sentence * 2 + sentence[:4]
    params = SamplingParams(temperature=0.0, max_tokens=60)
    vocab_size = chat_tokenizer().vocab_size
    script: Script = lambda history, depth: peak(history[-len(sentence) :][0], vocab_size)  # noqa: E731
    model = loaded_model(ScriptedModel(script, num_pages=8, vocab_size=vocab_size))
    asked = Request(request_id="r", prompt_token_ids=prompt, params=params, seed=0)
    engine = Engine(model.executor, max_context=model.max_context, drafter=make_drafter(drafter))
    engine.add_request(replace(asked, drafting=DraftParams(max_draft=3)))
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
    outcomes = [event.draft for event in events if event.draft is not None]
    drafted: Counter[int] = Counter()
    for outcome in outcomes:
        drafted.update(dict(enumerate(outcome.num_nodes_per_pos)))
    statistics = engine.statistics
    assert statistics.num_draft_tokens_per_pos == drafted
    assert statistics.num_accepted_tokens == sum(outcome.num_accepted for outcome in outcomes) > 30
    assert statistics.num_drafts == len(outcomes)
    llm = LLM.from_loaded(model, Serving(draft=None, draft_length="fixed"))
    report = llm.generate([prompt], params, RequestOptions(draft=drafter, max_draft=3))[0].report
    assert report.num_drafts == statistics.num_drafts
    assert report.num_emitted_tokens == statistics.num_emitted_tokens
    assert report.num_draft_tokens_per_pos == tuple(drafted[depth] for depth in range(len(drafted)))
    assert report.num_accepted_tokens == statistics.num_accepted_tokens
    assert llm.statistics.num_draft_tokens == statistics.num_draft_tokens
    assert llm.statistics.num_accepted_tokens_per_pos == statistics.num_accepted_tokens_per_pos
