"""The default model in q8 says the same with drafts as without, greedy and sampled, on all kinds of prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from offramp.core import DraftParams, Request, SamplingParams, SequenceKey
from offramp.draft import MAX_NODES, make_drafter
from offramp.draft.choice import DrafterChoice
from offramp.draft.length.confidence import ConfidenceLength
from offramp.engine.engine import Engine
from offramp.llm.loading import LoadedModel, load_model
from offramp.native.sampling import sample_rows
from offramp.testing.running import Told, run
from tests.speculation.prompts import PROMPTS, chat

NUM_TOKENS = 64
CONTEXT = 2048
DRAFTERS = ("ngram", "suffix", "ngram,suffix")
SAMPLED = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=NUM_TOKENS)
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)


@pytest.fixture(scope="module")
def model(default_model_path: Path) -> LoadedModel:
    return load_model(default_model_path, weights="q8", kv="f16", max_context=CONTEXT, max_num_seqs=16)


def requests_of(model: LoadedModel, texts: Mapping[str, str], params: SamplingParams) -> list[Request]:
    return [
        Request(
            request_id=name,
            prompt_token_ids=model.tokenizer.encode(text),
            params=params,
            eos_token_ids=model.eos_token_ids,
            seed=seed,
        )
        for seed, (name, text) in enumerate(texts.items())
    ]


def engine_of(model: LoadedModel, **settings: object) -> Engine:
    return Engine(model.executor, max_context=CONTEXT, sample_rows=sample_rows, **settings)  # type: ignore[arg-type]


def plain(model: LoadedModel, requests: Sequence[Request]) -> dict[SequenceKey, Told]:
    """Without drafts, at once: that a batch equals runs alone is tested elsewhere."""
    return run(engine_of(model, prefix_cache=False), requests)


@dataclass(frozen=True, slots=True)
class Drafts:
    """Tokens of one drafter; the accepted ones by request."""

    num_drafted: int
    accepted: Mapping[str, int]

    @property
    def num_accepted(self) -> int:
        return sum(self.accepted.values())


def check_drafters(model: LoadedModel, requests: Sequence[Request]) -> dict[str, Drafts]:
    """All drafters through one engine, one after the other; returns what each drafted."""
    truth = plain(model, requests)
    engine = engine_of(model, drafter=DrafterChoice(make_drafter, MAX_NODES), lengths=ConfidenceLength(0.7))
    drafts: dict[str, Drafts] = {}
    for drafter in DRAFTERS:
        before = engine.statistics.num_draft_tokens
        told = run(engine, [replace(each, drafting=DraftParams(drafter=drafter)) for each in requests])
        assert told.keys() == truth.keys()
        for key, mine in told.items():
            assert (mine.token_ids, mine.finish_reason) == (truth[key].token_ids, truth[key].finish_reason), key
        accepted = {name: len(mine.token_ids) - len(mine.block_lens) for (name, _), mine in told.items()}
        drafts[drafter] = Drafts(engine.statistics.num_draft_tokens - before, accepted)
    return drafts


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("greedy", "least_greedy", "drawn", "least_drawn"),
    [
        pytest.param(("quote", "code", "repetition"), 50, ("json", "repetition"), 20, id="some"),
        pytest.param(
            tuple(PROMPTS), 100, ("summary", "code", "json", "repetition"), 20, id="all", marks=pytest.mark.slow
        ),
    ],
)
def test_answers_are_the_same_greedy_and_sampled(
    model: LoadedModel, greedy: tuple[str, ...], least_greedy: int, drawn: tuple[str, ...], least_drawn: int
) -> None:
    certain = {name: PROMPTS[name] for name in greedy}
    sampled = {f"{name}, sampled": PROMPTS[name] for name in drawn}
    requests = [*requests_of(model, certain, GREEDY), *requests_of(model, sampled, SAMPLED)]
    for drafts in check_drafters(model, requests).values():
        assert sum(drafts.accepted[name] for name in certain) > least_greedy
        assert sum(drafts.accepted[name] for name in sampled) > least_drawn
        assert drafts.num_drafted > drafts.num_accepted, "nothing was rejected"


@pytest.mark.slow
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_sixty_prompts_of_six_tasks(model: LoadedModel, params: SamplingParams) -> None:
    """Spec-Bench, ten prompts a task, where OFFRAMP_DATA names the folder that holds it."""
    folder = os.environ.get("OFFRAMP_DATA")
    if folder is None:
        pytest.skip("OFFRAMP_DATA is not set")
    lines = (Path(folder) / "spec_bench.jsonl").read_text(encoding="utf-8").splitlines()
    tasks: dict[str, list[str]] = {}
    for entry in map(json.loads, lines):
        tasks.setdefault(entry["task"], []).append(entry["prompt"])
    texts = {f"{task} {i}": chat(text) for task, found in tasks.items() for i, text in enumerate(found[:10])}
    assert len(texts) == 60
    for drafts in check_drafters(model, requests_of(model, texts, params)).values():
        assert drafts.num_drafted > drafts.num_accepted > 200
