"""Small engines whose requests have grammars: a scripted model, a native one, and drafts that are right and wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from offramp.core import DraftAsk, DraftParams, Request, SequenceKey, TokenTree
from offramp.engine.engine import Engine
from offramp.model.executor import LayerExecutor
from offramp.native import build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.drafters import Propose, ScriptedDrafter
from offramp.testing.running import Told
from offramp.testing.scripted import ScriptedModel
from offramp.testing.toy import toy_config, toy_source
from tests.grammar.grammars import VOCAB

CONTEXT = 160
MODEL = build_executor(
    toy_source(
        toy_config(num_layers=2, hidden_size=32, intermediate_size=32, num_heads=2, num_kv_heads=1, vocab_size=VOCAB),
        seed=5,
    ),
    kv="f16",
    num_pages=64,
    threads=1,
)
Answers = dict[SequenceKey, Told]


def noise(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
    """Every logit depends on the whole history: one wrong token changes all that follows."""
    return np.random.default_rng(history).standard_normal(VOCAB, dtype=np.float32)


def scripted(num_pages: int = 32) -> LayerExecutor:
    return ScriptedModel(noise, num_pages=num_pages, vocab_size=VOCAB)


def native() -> LayerExecutor:
    return MODEL


def engine_of(make: Callable[[], LayerExecutor] = native, propose: Propose | None = None, **settings: int) -> Engine:
    drafter = None if propose is None else ScriptedDrafter(propose, max_nodes=12)
    return Engine(make(), max_context=CONTEXT, drafter=drafter, sample_rows=sample_rows, **settings)


def undrafted(asked: Request) -> Request:
    return replace(asked, drafting=DraftParams(drafter="off"))


def bushy(answers: Answers) -> Propose:
    """The right tokens in a tree of others, some of which the grammar forbids."""

    def propose(ask: DraftAsk) -> TokenTree:
        rng = random.Random(f"{ask.key} {len(ask.token_ids)}")
        begin = len(ask.token_ids) - ask.prompt_len
        ids, parents, right = [], [], -1
        for token in answers[ask.key].token_ids[begin : begin + 4]:
            ids += [rng.randrange(VOCAB), token, rng.randrange(VOCAB)]
            parents += [right, right, right]
            right = len(ids) - 2
        return TokenTree(tuple(ids), tuple(parents))

    return propose


def same(left: Answers, right: Answers) -> bool:
    def facts(answers: Answers) -> dict[SequenceKey, tuple[object, ...]]:
        return {key: (told.token_ids, told.finish_reason, told.logprobs) for key, told in answers.items()}

    return facts(left) == facts(right)
