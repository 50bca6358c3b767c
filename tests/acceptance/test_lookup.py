"""Faults that other engines showed with drafts looked up in the text itself, and with references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.core import Drafter, DraftParams, Request, SamplingParams
from offramp.draft.chain import ChainDrafter
from offramp.draft.length.confidence import ConfidenceLength
from offramp.draft.length.fixed import FixedLength
from offramp.draft.length.heuristic import HeuristicLength
from offramp.draft.ngram import NgramDrafter
from offramp.draft.reference import ReferenceDrafter
from offramp.engine.engine import Engine
from offramp.llm.loading import load_model
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.running import Told, run, run_plain
from offramp.testing.scripted import ScriptedModel, mixing, peak
from offramp.testing.tokens import ByteTokenizer
from offramp.testing.toy import ToyFormat, toy_config, toy_source

CONTEXT = 192
FORMATS: tuple[ToyFormat, ...] = ("f32", "q8", "q4")
CONFIG = toy_config(num_layers=3, hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2, vocab_size=260)
MAKERS: dict[str, Callable[[int], Drafter]] = {
    "ngram": lambda k: NgramDrafter(max_nodes=k),
    "reference": lambda k: ReferenceDrafter(max_nodes=k),
    "merged": lambda k: ChainDrafter([NgramDrafter(max_nodes=k), ReferenceDrafter(max_nodes=k)]),
    "best": lambda k: ChainDrafter([NgramDrafter(max_nodes=k), ReferenceDrafter(max_nodes=k)], merge=False),
}
SAMPLING: list[dict[str, object]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1e-4, "top_p": 1e-4},
    {"temperature": 0.9, "top_k": 5, "repetition_penalty": 1.2},
    {"temperature": 1.0, "min_p": 0.3, "logit_bias": {70: -100.0}},
    {"temperature": 0.0, "frequency_penalty": 2.0, "presence_penalty": -1.0, "logprobs": 2},
]


def looping(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Repeats what came 7 tokens ago, except that now and then, by a hash of the text, another token comes."""
    state = 17
    for token in history[-9:]:
        state = (state * 31 + token) % 65521
    if len(history) < 7 or state % 11 == 0:
        return peak(state % 90)
    return peak(history[-7])


def scripted() -> LayerExecutor:
    return ScriptedModel(looping, num_pages=24)


def wandering() -> LayerExecutor:
    return ScriptedModel(mixing(), num_pages=24)


def native(weights: ToyFormat = "q8") -> LayerExecutor:
    return build_executor(toy_source(CONFIG, seed=9, weights=weights), kv="f16", num_pages=32, threads=2)


def request(
    prompt: Sequence[int], name: str = "r", references: Sequence[Sequence[int]] = (), **params: object
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=42,
        drafting=DraftParams(references=tuple(np.array(text, np.int32) for text in references)),
    )


def plain(ask: Request, make: Callable[[], LayerExecutor] = scripted, context: int = CONTEXT) -> Told:
    return run_plain(make(), ask, max_context=context)["r", 0]


def same(told: Told, truth: Told) -> None:
    assert (told.token_ids, told.finish_reason, told.logprobs) == (truth.token_ids, truth.finish_reason, truth.logprobs)


def text_ids(text: str) -> list[int]:
    return ByteTokenizer().encode(text)


@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_looked_up_drafts_change_nothing_b12_b13_b16_b18(name: str, sampling: dict[str, object]) -> None:
    ask = request(range(9), max_tokens=60, references=[[*range(40), 300, -5], []], **sampling)  # type: ignore[arg-type]
    truth = plain(ask)
    ask = replace(ask, drafting=DraftParams(references=(*ask.drafting.references, np.array(truth.token_ids[5:]))))
    engine = Engine(scripted(), max_context=CONTEXT, drafter=MAKERS[name](8))
    same(run(engine, [ask])["r", 0], truth)
    assert engine.statistics.num_accepted_tokens > 0


@pytest.mark.parametrize("k", [1, 3, 4, 7, 8, 12, 16, 64])
@pytest.mark.parametrize("name", MAKERS)
def test_b47_any_draft_length_works(name: str, k: int) -> None:
    ask = request(text_ids("Once upon a time"), temperature=0, max_tokens=50, references=[text_ids("Once upon a hill")])
    engine = Engine(native(), max_context=CONTEXT, drafter=MAKERS[name](k), sample_rows=sample_rows)
    same(run(engine, [ask])["r", 0], plain(ask, native))
    assert max(engine.statistics.num_draft_tokens_per_pos, default=0) < k


@pytest.mark.parametrize(
    "lengths", [FixedLength(2), HeuristicLength(), ConfidenceLength()], ids=lambda it: type(it).__name__
)
def test_any_length_control_keeps_the_tokens(lengths: FixedLength | HeuristicLength | ConfidenceLength) -> None:
    ask = request([1, 2, 3, 1, 2], temperature=0.8, max_tokens=80)
    engine = Engine(scripted(), max_context=CONTEXT, drafter=NgramDrafter(), lengths=lengths)
    same(run(engine, [ask])["r", 0], plain(ask))
    assert engine.statistics.num_accepted_tokens > 0


@pytest.mark.real_model
@pytest.mark.parametrize("kv", ["f16", pytest.param("f32", marks=pytest.mark.slow)])
def test_b01_a_repetitive_prompt_on_the_real_model(kv: str, default_model_path: Path) -> None:
    loaded = load_model(default_model_path, weights="q8", kv=kv, max_context=480, max_num_seqs=1)
    model, prompt = loaded.executor, loaded.tokenizer.encode("serving" * 48)
    ask = request(prompt, temperature=0, top_p=1, seed=42, max_tokens=32)
    engine = Engine(model, max_context=480, drafter=NgramDrafter(2, 5, 4), sample_rows=sample_rows)
    told = run(engine, [ask])["r", 0]
    same(told, plain(ask, lambda: model, context=480))
    assert engine.statistics.num_accepted_tokens > 0


@pytest.mark.parametrize("name", MAKERS)
def test_b04_later_calls_of_one_engine_equal_the_first(name: str) -> None:
    ask = request([1, 2, 3, 1, 2], temperature=0, max_tokens=40, references=[[1, 2, 3, 4, 5]])
    truth = plain(ask)
    engine = Engine(scripted(), max_context=CONTEXT, drafter=MAKERS[name](8))
    for _ in range(3):
        same(run(engine, [ask])["r", 0], truth)


@pytest.mark.parametrize("weights", FORMATS)
def test_b07_quantized_weights_answer_as_without_drafts(weights: ToyFormat) -> None:
    ask = request(text_ids("user: hi\nbot: hello\nuser: hi again\nbot:"), temperature=0, max_tokens=60)
    engine = Engine(native(weights), max_context=CONTEXT, drafter=NgramDrafter(max_nodes=2), sample_rows=sample_rows)
    same(run(engine, [ask])["r", 0], plain(ask, lambda: native(weights)))
    assert engine.statistics.num_draft_tokens > 0


def test_b30_an_end_token_inside_a_copied_run_ends_the_output() -> None:
    free = request([1, 2, 3] * 8, temperature=0, max_tokens=40)
    answer = plain(free).token_ids
    for place in (0, 1, 5, 7, 8):
        ask = replace(free, eos_token_ids=frozenset({answer[place]}))
        told = run(Engine(scripted(), max_context=CONTEXT, drafter=NgramDrafter()), [ask])["r", 0]
        assert told.token_ids == answer[: answer.index(answer[place]) + 1]
        assert told.finish_reason == "stop"


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_b32_never_more_than_max_tokens(name: str, max_tokens: int) -> None:
    ask = request([5] * 30, temperature=0, max_tokens=max_tokens, references=[[5] * 30])
    told = run(Engine(scripted(), max_context=CONTEXT, drafter=MAKERS[name](3)), [ask])["r", 0]
    assert len(told.token_ids) == max_tokens
    assert told.finish_reason == "length"
    same(told, plain(ask))


@pytest.mark.parametrize("name", MAKERS)
def test_b42_never_past_the_context(name: str) -> None:
    ask = request([3] * 58, temperature=0, max_tokens=10, references=[[3] * 80])
    told = run(Engine(scripted(), max_context=64, drafter=MAKERS[name](5)), [ask])["r", 0]
    assert (len(told.token_ids), told.finish_reason) == (6, "length")
    same(told, plain(ask, context=64))


def test_b52_an_earlier_request_changes_no_count_of_a_later_one() -> None:
    long = request([7, 8, 9] * 30, "long", temperature=0, max_tokens=60)
    short = request([1, 2, 3, 4], temperature=0, max_tokens=50)
    counts = []
    for before in ([], [long]):
        engine = Engine(scripted(), max_context=CONTEXT, drafter=NgramDrafter(), lengths=FixedLength(4))
        run(engine, before)
        drafted, accepted = engine.statistics.num_draft_tokens, engine.statistics.num_accepted_tokens
        told = run(engine, [short])["r", 0]
        same(told, plain(short))
        counts.append((engine.statistics.num_draft_tokens - drafted, engine.statistics.num_accepted_tokens - accepted))
    assert counts[0] == counts[1]


def test_b111_b116_copying_the_answer_itself_brings_whole_blocks_and_the_bonus_token() -> None:
    ask = request([1, 2, 3], temperature=0, max_tokens=40)
    truth = plain(ask, wandering)
    texts = (np.array([1, 2, 3, *truth.token_ids], np.int32),)
    engine = Engine(wandering(), max_context=CONTEXT, drafter=ReferenceDrafter(max_nodes=4))
    told = run(engine, [replace(ask, drafting=DraftParams(references=texts))])["r", 0]
    same(told, truth)
    assert told.block_lens == [5] * 8
    assert engine.statistics.acceptance_rate == 1.0


@pytest.mark.parametrize("name", MAKERS)
def test_b125_many_requests_some_of_one_token_some_repetitive(name: str) -> None:
    prompts: list[list[int]] = [[i] if i % 3 == 0 else [4, 5] * i if i % 3 == 1 else list(range(i)) for i in range(17)]
    texts: list[list[int]] = [[], [9], [4, 5, 4, 6, 1 << 20]]
    asks = [request(p or [1], f"r{i}", texts[i % 3 :], temperature=i % 2, max_tokens=12) for i, p in enumerate(prompts)]
    truth = {key: told for ask in asks for key, told in run_plain(scripted(), ask, max_context=CONTEXT).items()}
    told = run(Engine(scripted(), max_context=CONTEXT, max_num_seqs=17, drafter=MAKERS[name](6)), asks)
    assert len(told) == 17
    for key, one in told.items():
        same(one, truth[key])
