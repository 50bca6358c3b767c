"""Faults that other engines showed with sliding windows: here a window is a mask, and no page is given up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from offramp.core import Request, SamplingParams, SequenceKey
from offramp.engine.engine import Engine
from offramp.model.config import LayerAttention, RopeConfig
from offramp.model.executor import LayerExecutor
from offramp.model.families import FAMILIES
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.batches import chain, pack_rows
from offramp.testing.drafters import ScriptedDrafter, mixed_chain, random_tree
from offramp.testing.families import family_config
from offramp.testing.running import run, run_plain
from offramp.testing.toy import DictSource, toy_config, toy_source
from offramp.testing.twin import TwinExecutor

CONTEXT = 128
LOCAL = RopeConfig(base=200.0, rotary_dim=16)


MIXED = "mixed"
"""Windows of two widths, and a layer without one between them."""
MODELS = [MIXED, *(family.name for family in FAMILIES.values() if family.windows != "none")]
models = pytest.mark.parametrize("model", MODELS)


def source(window: int, model: str) -> DictSource:
    layers = [LayerAttention(rope=LOCAL, window=w) for w in (window, None, window + 7)]
    if model == MIXED:
        config = toy_config(num_layers=3, rope=LOCAL, attention=tuple(layers), max_context=CONTEXT)
    else:
        num_layers = 7 if model == "gemma3" else 4
        config = family_config(model, window=window, num_layers=num_layers, max_context=CONTEXT)
        config = replace(config, embedding_scale=1.0)  # a large one makes toys repeat themselves
    return toy_source(config, seed=9, weights="q8")


def executor(window: int, model: str = MIXED) -> LayerExecutor:
    return build_executor(source(window, model), num_pages=32, threads=2)


def request(prompt: Sequence[int], name: str = "r", **params: object) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=42,
        eos_token_ids=frozenset(),
    )


@models
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("shared", [4, 36])
def test_b53_a_warm_prefix_changes_nothing(shared: int, drafts: bool, model: str) -> None:
    """36 common tokens fill a page, whose K/V the second turn takes over although the window has left it."""
    rng = np.random.default_rng(shared)
    first = rng.integers(256, size=40).tolist()
    second = first[:shared] + rng.integers(256, size=40 - shared).tolist()
    asks = [request(first, "a", temperature=0, max_tokens=20), request(second, "b", temperature=0, max_tokens=20)]
    cold = {
        key: told.token_ids
        for ask in asks
        for key, told in run_plain(executor(16, model), ask, max_context=CONTEXT).items()
    }
    drafter = ScriptedDrafter(mixed_chain(cold, 4, 260, seed=1), max_nodes=4) if drafts else None
    options = {"drafter": drafter, "sample_rows": sample_rows} if drafts else {}
    engine = Engine(executor(16, model), max_context=CONTEXT, **options)  # type: ignore[arg-type]
    for ask in asks:
        told = run(engine, [ask])
        assert {key: t.token_ids for key, t in told.items()} == {key: cold[key] for key in told}
    assert bool(engine.statistics.num_cached_tokens) == (shared == 36)


@models
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_b54_drafts_beyond_the_window_equal_plain_decoding(temperature: float, model: str) -> None:
    ask = request([5, 6, 7, 8, 9], temperature=temperature, max_tokens=44)
    truth = run_plain(executor(8, model), ask, max_context=CONTEXT)["r", 0].token_ids
    if temperature == 0:
        slow = TwinExecutor(source(8, model), num_pages=4)
        rows = pack_rows(chain([*ask.prompt_token_ids, *truth[:-1]]), [range(4)])
        logits = slow.logits(slow.run_layers(slow.embed(rows), rows, 0, slow.config.num_layers))
        assert logits[len(ask.prompt_token_ids) - 1 :].argmax(axis=1).tolist() == truth
    answers: dict[SequenceKey, list[int]] = {("r", 0): truth}
    for propose in (mixed_chain(answers, 4, 260, seed=3), random_tree(answers, 9, 260, seed=4)):
        drafter = ScriptedDrafter(propose, max_nodes=9)
        engine = Engine(executor(8, model), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows)
        told = run(engine, [ask])["r", 0]
        assert told.token_ids == truth
        assert max(told.block_lens) > 1, "no draft was ever accepted: the test shows nothing"


@models
def test_a_window_matters(model: str) -> None:
    """Without this the tests above would pass on an engine that ignores it."""
    ask = request(np.random.default_rng(2).integers(256, size=40).tolist(), temperature=0, max_tokens=20)
    answers = [run_plain(executor(w, model), ask, max_context=CONTEXT)["r", 0].token_ids for w in (4, 16, 128)]
    assert len({tuple(answer) for answer in answers}) == 3
