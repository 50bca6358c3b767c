"""One case of the matrix: how to draft, on what, for whom; what comes of it, and what plain decoding gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from offramp.core import DraftParams, LengthController, Request, SamplingParams, SequenceKey
from offramp.draft import AUTO, DRAFT_MODEL, DRAFTERS, EAGLE, EARLY_EXIT, MAX_NODES, OFF, Drafters, make_drafter
from offramp.draft.early_plans import PaidExits
from offramp.draft.length import LENGTHS, LengthSettings
from offramp.draft.model_plans import PaidLength
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.draft.predictions import Predictions
from offramp.engine.draft_rows import DraftRows
from offramp.engine.engine import Engine
from offramp.engine.statistics import Statistics
from offramp.engine.taps import Taps
from offramp.model.executor import HeadId, LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.costs import ScriptedCosts, each_row
from offramp.testing.running import Told, run, run_plain
from offramp.testing.toy import DictSource, ToyFormat, convert, toy_config, toy_source
from tests.draft.weighted import LayeredCosts, cut_model, eagle_maker, early_maker, heads_of, model_maker
from tests.speculation.wheel import END, Wheel

VOCAB = 32
CONTEXT = 128
NUM_TOKENS = 22
FOREIGN = (1 << 20, -7)
"""Ids that the model does not know."""
ROW_COST = 0.02
"""Of a step, as goodput lengths are told: little, so that drafts run."""

JOINED = ("ngram,suffix", "ngram,reference", "eagle,suffix")
DRAFT_CONTEXT = 60
"""Of the draft model: some texts outgrow it."""
EXITS = (1,)
"""Of the pack that self-drafting goes through."""
TAPS = (1, 2)
"""Depths that the side layer looks at."""
FIXED = (1, 4, 16)

SAMPLING: Mapping[str, Mapping[str, object]] = {
    "greedy": {"temperature": 0.0},
    "greedy repetition": {"temperature": 0.0, "repetition_penalty": 1.15},
    "greedy presence": {"temperature": 0.0, "presence_penalty": -1.0, "frequency_penalty": 0.4},
    "greedy bias": {"temperature": 0.0, "logit_bias": {3: 4.0, 7: -100.0}},
    "cool": {"temperature": 0.7},
    "hot": {"temperature": 1.3},
    "top-k": {"temperature": 0.7, "top_k": 3},
    "top-p": {"temperature": 1.3, "top_p": 0.6},
    "min-p": {"temperature": 1.3, "min_p": 0.2},
    "repetition": {"temperature": 0.7, "repetition_penalty": 1.2},
    "presence": {"temperature": 0.7, "presence_penalty": 0.8, "frequency_penalty": -0.3},
    "bias": {"temperature": 1.3, "logit_bias": {5: 6.0, 9: -100.0}},
    "all": {
        "temperature": 0.7,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.02,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
        "logit_bias": {4: 2.0, 11: -3.0},
        "min_tokens": 5,
    },
}

LENGTH_NAMES = (*(f"fixed {k}" for k in FIXED), *(name for name in LENGTHS if name != "fixed"))

AXES: Mapping[str, Sequence[object]] = {
    "sampling": tuple(SAMPLING),
    "lengths": LENGTH_NAMES,
    "drafter": (*DRAFTERS, *JOINED),
    "batch": (1, 3, 8),
    "weights": ("f32", "q8", "q4"),
    "kv": ("f16", "f32"),
    "cache": (True, False),
    "references": (True, False),
    "grammar": (False, True),
    "num_rows": (20, 512),
}


@dataclass(frozen=True, slots=True)
class Case:
    sampling: str
    lengths: str
    drafter: str
    batch: int
    weights: ToyFormat
    kv: str
    cache: bool
    references: bool
    grammar: bool
    num_rows: int  # of a step at most: prompts come in chunks, and drafts get what is left

    @property
    def drafts(self) -> bool:
        """Somebody has something to draft from; a grammar says what it forces in any case."""
        return self.grammar or (self.drafter != OFF and (self.references or self.drafter != "reference"))

    def __str__(self) -> str:
        kept = "cache" if self.cache else "no cache"
        copied = "references" if self.references else "no references"
        bound = "a grammar" if self.grammar else "no grammar"
        return (
            f"{self.drafter} / {self.lengths} / {self.batch} at once, {self.num_rows} rows / {kept} / "
            f"{self.weights} {self.kv} / {self.sampling} / {copied} / {bound}"
        )


@dataclass(slots=True)
class Ran:
    """Two rounds of the same requests through one engine."""

    truth: dict[SequenceKey, Told]
    rounds: list[dict[SequenceKey, Told]] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)


@cache
def executor(weights: ToyFormat, kv: str, num_pages: int = 48) -> LayerExecutor:
    return build_executor(steady_source(weights), kv=kv, num_pages=num_pages, threads=1)


@cache
def steady_source(weights: ToyFormat) -> DictSource:
    """A toy whose next token depends mostly on the last few: its answers circle, and sampling is fairly sure of itself.

    Otherwise nothing that random weights say could be foretold, and hardly a draft would stand.
    """
    config = toy_config(
        num_layers=2, hidden_size=32, intermediate_size=64, num_heads=2, num_kv_heads=1, vocab_size=VOCAB
    )
    plain = toy_source(config, seed=11)
    matrices = {}
    for role in plain.matrices:
        values = plain.matrices[role].values  # type: ignore[union-attr]
        matrices[role] = convert(values * (4.0 if "embedding" in role else 1.0), weights)
    return replace(plain, matrices=matrices)


@cache
def prompts(seed: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Most share a beginning of more than a page; some repeat themselves, some do not, one is a single token."""
    rng = np.random.default_rng(seed)
    phrase = rng.integers(VOCAB, size=9).tolist()
    shared = (phrase * 5)[:38]
    made: list[list[int]] = []
    for index in range(count):
        own = rng.integers(VOCAB, size=int(rng.integers(1, 14))).tolist()
        kinds = [shared + own, shared + own + phrase[:3], own * 3, shared + own + own[: len(own) // 2], own[:1]]
        made.append(kinds[index % len(kinds)])
    return tuple(map(tuple, made))


def request(prompt: Sequence[int], name: str, sampling: str, seed: int, grammar: bool) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(max_tokens=NUM_TOKENS, logprobs=2, **SAMPLING[sampling]),  # type: ignore[arg-type]
        seed=seed,
        eos_token_ids=frozenset({END}),
        grammar=Wheel(VOCAB) if grammar else None,
    )


@cache
def truth_of(prompt: tuple[int, ...], sampling: str, seed: int, weights: ToyFormat, kv: str, grammar: bool) -> Told:
    """The request alone, without drafts, the whole prompt in one chunk, drawn by the slow sampler."""
    alone = replace(request(prompt, "r", sampling, seed, grammar), drafting=DraftParams(drafter=OFF))
    return run_plain(executor(weights, kv), alone, max_context=CONTEXT)["r", 0]


def references_of(prompt: Sequence[int], answer: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Texts that help now and then, with ids that the model does not know; an empty one too."""
    spoiled = [FOREIGN[place % 2] if place % 7 == 6 else token for place, token in enumerate(answer)]
    other = [(token + 1) % VOCAB if place % 5 == 4 else token for place, token in enumerate([*prompt, *answer])]
    return tuple(np.array(text, dtype=np.int32) for text in (spoiled, [], other))


def make_lengths(name: str) -> LengthController:
    kind, _, most = name.partition(" ")
    costs = ScriptedCosts(each_row(ROW_COST))
    return LENGTHS[kind](LengthSettings(costs=costs, num_layers=2, max_draft=int(most) if most else None))


def make_plans(name: str, exits: tuple[int, ...]) -> DraftPlans:
    """How drafters with weights go about it under these lengths; through exits, or with a model of their own."""
    kind, _, most = name.partition(" ")
    if kind == "goodput":
        costs = LayeredCosts(2, row=ROW_COST)
        return PaidExits(costs, 2, exits, MAX_NODES) if exits else PaidLength(costs, 2, MAX_NODES)
    return FixedPlans(exits, int(most) if most else MAX_NODES)


@cache
def draft_model() -> LayerExecutor:
    """The first layer of the toy, with some ids more, and pages for few sequences."""
    return cut_model(steady_source("f32"), 1, more_ids=3, num_pages=12)


@cache
def exit_heads(model: LayerExecutor) -> Mapping[int, HeadId]:
    return heads_of(model, EXITS)


def looks_at_states(request: Request) -> bool:
    """An engine's own choice is the case's."""
    return not request.drafts_off and bool({EAGLE, AUTO} & set((request.drafting.drafter or EAGLE).split(",")))


def make_drafters(model: LayerExecutor, lengths: str) -> tuple[Drafters, DraftRows, Taps]:
    """All drafters for an engine of the model, and what it needs for those that need layers or hidden states."""
    draft_rows, taps = DraftRows(model), Taps(TAPS, looks_at_states)
    makers = {
        EARLY_EXIT: early_maker(model, exit_heads(model), draft_rows, make_plans(lengths, EXITS)),
        DRAFT_MODEL: model_maker(model, draft_model(), make_plans(lengths, ()), DRAFT_CONTEXT),
        EAGLE: eagle_maker(model, taps, make_plans(lengths, ()), known=range(VOCAB - 4)),
    }
    predictions = Predictions(LayeredCosts(2, row=ROW_COST), 2) if lengths == "goodput" else None
    return Drafters(makers=makers, predictions=predictions), draft_rows, taps


def engine_of(case: Case) -> Engine:
    model = executor(case.weights, case.kv)
    drafters, draft_rows, taps = make_drafters(model, case.lengths)
    return Engine(
        model,
        max_context=CONTEXT,
        max_num_seqs=case.batch,
        max_num_batched_tokens=case.num_rows,
        drafter=make_drafter(case.drafter, drafters),
        lengths=make_lengths(case.lengths),
        draft_rows=draft_rows,
        taps=taps if {EAGLE, AUTO} & set(case.drafter.split(",")) else None,
        prefix_cache=case.cache,
        sample_rows=sample_rows,
    )


def run_case(case: Case, seed: int, sampling: Iterable[str] = ()) -> Ran:
    """Two rounds, so that the second finds what the first left behind: cached prefixes, learned texts and rates.

    As many requests as the case's batch, or one for each of `sampling`.
    """
    kinds = tuple(sampling) or (case.sampling,) * case.batch
    requests, truth = [], {}
    for index, (prompt, kind) in enumerate(zip(prompts(seed, len(kinds)), kinds, strict=True)):
        told = truth_of(prompt, kind, index, case.weights, case.kv, case.grammar)
        texts = references_of(prompt, told.token_ids) if case.references else ()
        asked = request(prompt, f"r{index}", kind, index, case.grammar)
        requests.append(replace(asked, drafting=DraftParams(references=texts)))
        truth[f"r{index}", 0] = told
    engine = engine_of(case)
    ran = Ran(truth)
    for _ in range(2):
        ran.rounds.append(run(engine, requests))
    ran.statistics = engine.statistics
    return ran


def check(ran: Ran) -> None:
    """Ids, logprobs and finish reasons are those of plain decoding, bit for bit."""
    for told in ran.rounds:
        assert told.keys() == ran.truth.keys()
        for key, mine in told.items():
            same(mine, ran.truth[key], key)


def same(mine: Told, alone: Told, key: SequenceKey) -> None:
    assert mine.token_ids == alone.token_ids, key
    assert mine.logprobs == alone.logprobs, key
    assert (mine.finish_reason, mine.text_stopped) == (alone.finish_reason, alone.text_stopped), key
