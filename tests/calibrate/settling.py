"""Toy models whose deeper layers change little or nothing, so that exits agree with full depth more or less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from offramp.calibrate.answers import Rig, Tell
from offramp.calibrate.costs import ExitCosts
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.core import SamplingParams
from offramp.engine.engine import Engine
from offramp.exits.pack import ExitHead, ExitPack, load_heads
from offramp.exits.policy import ExitPolicy
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel
from offramp.model.heads import HeadWeights
from offramp.model.quantize import dequantize
from offramp.model.tensors import F32Matrix
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.models import chat_tokenizer, loaded_model
from offramp.testing.packs import random_pack
from offramp.testing.toy import DictSource, toy_config, toy_source

NUM_LAYERS = 5
LAYERS = (2, 3)
CONTEXT = 96
NUM_PAGES = 64
VOCAB = chat_tokenizer().vocab_size
CONFIG = toy_config(
    num_layers=NUM_LAYERS,
    hidden_size=32,
    intermediate_size=32,
    num_heads=2,
    num_kv_heads=1,
    vocab_size=VOCAB,
    max_context=CONTEXT,
)
MODEL_HASH = "5" * 64
GREEDY = SamplingParams(temperature=0, max_tokens=8)
DRAWN = SamplingParams(
    temperature=0.8, top_k=40, max_tokens=8, min_tokens=2, repetition_penalty=1.2, frequency_penalty=0.1
)
COSTS = ExitCosts(
    call=0.01,
    layer=(1.0, 1.05, 1.1, 1.15, 1.2),
    head=1.0,
    ask=dict.fromkeys(LAYERS, 0.2),
    predict={"pack": 0.01, "similarity": 0.01},
    fill=0.05,
    step=0.1,
)
"""As where a layer costs much more than anything around it."""


def silent(done: int, total: int) -> None:
    """Nobody listens."""


def stage(text: str) -> Tell:
    return silent


@cache
def settling_source(rest: float, seed: int = 7) -> DictSource:
    """What layers behind the first exit point add to the residual stream is scaled by `rest`."""
    plain = toy_source(CONFIG, seed=seed)
    matrices = dict(plain.matrices)
    for layer in range(LAYERS[0], NUM_LAYERS):
        for part in ("o", "down"):
            role = f"layers.{layer}.{part}"
            matrices[role] = F32Matrix((dequantize(plain.matrices[role]) * np.float32(rest)).astype(np.float32))
    return DictSource(CONFIG, matrices, plain.vectors)


def shared_pack() -> ExitPack:
    """Exits with the model's own head."""
    return random_pack(CONFIG, model=MODEL_HASH, layers=LAYERS, kind="shared")


def pack_of(head: HeadWeights, at: int) -> ExitPack:
    """The same, but for another head at one exit point."""
    pack = shared_pack()
    return replace(pack, exits={**pack.exits, at: ExitHead(head)})


def settling_model(rest: float, pack: ExitPack | None = None) -> LoadedModel:
    """A loaded model with exits after layers 2 and 3 of 5."""
    executor = build_executor(settling_source(rest), num_pages=NUM_PAGES, threads=1)
    pack = pack or shared_pack()
    exits = LoadedExits(name="pack", folder=Path("pack"), pack=pack, heads=load_heads(executor, pack), entries=())
    return replace(loaded_model(executor), source_hash=MODEL_HASH, exits=exits)


def prompts(count: int, seed: int = 0, longest: int = 36) -> list[CalibrationPrompt]:
    """Random ids."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, longest, count)
    return [
        CalibrationPrompt(rng.integers(3, VOCAB, length).astype(np.int32), 1000 * seed + number, (), f"line {number}")
        for number, length in enumerate(lengths.tolist())
    ]


def rig(
    loaded: LoadedModel,
    params: SamplingParams = GREEDY,
    policies: Mapping[str, ExitPolicy] | None = None,
    at_once: int = 16,
) -> Rig:
    engine = Engine(
        loaded.executor,
        max_context=CONTEXT,
        max_num_seqs=at_once,
        exit_policies=policies,
        sample_rows=sample_rows,
    )
    return Rig(
        executor=loaded.executor,
        engine=engine,
        params=params,
        eos_token_ids=loaded.eos_token_ids,
        sample_rows=sample_rows,
    )
