"""Grammars over the tests' tokenizer, and requests that have one."""

from __future__ import annotations

from functools import cache

import numpy as np

from offramp.core import Matcher, Request, SamplingParams, StructuredOutputsParams
from offramp.grammar import CompiledGrammar, Grammars
from offramp.testing.models import END_OF_TURN, chat_tokenizer

VOCAB = chat_tokenizer().vocab_size + 5  # a model may have more rows than there are tokens


@cache
def grammars() -> Grammars:
    return Grammars(chat_tokenizer(), VOCAB, {END_OF_TURN})


def compiled(**asked: object) -> CompiledGrammar:
    return grammars().compile(StructuredOutputsParams(**asked))  # type: ignore[arg-type]


def request(structure: StructuredOutputsParams, *, name: str = "r", seed: int = 8, **params: object) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=[3, 4, 5],
        params=SamplingParams(structured_outputs=structure, **params),  # type: ignore[arg-type]
        eos_token_ids=frozenset({END_OF_TURN}),
        seed=seed,
        grammar=grammars().compile(structure),
    )


def allowed_ids(matcher: Matcher) -> list[int]:
    return np.flatnonzero(matcher.allowed()).tolist()


def allowed_texts(matcher: Matcher) -> set[str]:
    """Texts of the tokens that may come; "" is an end token."""
    tokenizer = chat_tokenizer()
    return {"" if token == END_OF_TURN else tokenizer.token_text(token) for token in allowed_ids(matcher)}


def feed(matcher: Matcher, text: str) -> None:
    for token in chat_tokenizer().encode(text, parse_special=False):
        assert matcher.allowed()[token], text
        matcher.advance(token)


def text_of(token_ids: list[int]) -> str:
    return chat_tokenizer().decode(token_ids)


def tokens(text: str) -> list[int]:
    return chat_tokenizer().encode(text, parse_special=False)
