"""The grammars of one model: compiled when first asked for, and kept while they are asked for again.

Bad input costs little: texts are bounded, and so is what llguidance does for one of them and for one token. Except for
looking ahead it works without Python's lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from offramp.core import StructuredOutputsParams
from offramp.errors import InvalidRequestError
from offramp.fork import in_child
from offramp.grammar.compiled import CompiledGrammar, short_error
from offramp.grammar.schema import (
    blamed,
    check_depth,
    check_multiples,
    check_numbers,
    check_options,
    parsed_schema,
    unending,
)
from offramp.grammar.sources import Source, source_of
from offramp.grammar.tools import ToolAnswer, source_of_calls
from offramp.grammar.vocabulary import grammar_vocabulary
from offramp.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_KEPT = 64
MAX_KEPT_CHARACTERS = 1 << 19
"""Of all that are kept, as texts; in memory they may take 150 times as much."""
MAX_FORCED = 16_384
"""Bytes that the beginning of an answer may be bound to."""
FUEL = (100_000, 250_000)
"""What llguidance may spend at the start, and on one look ahead, some units for each byte that is found, while Python's
lock is kept: enough for most grammars, or else as much as any gets."""
BOUND = "it binds the answer to more than"
PROBED_TOKENS = 4


class Grammars:
    """Safe to share between threads; the first grammar takes a second, for the vocabulary."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._words: LLTokenizer | None = None
        self._kept: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._new_lock()
        in_child(self._new_lock)

    def compile(self, asked: StructuredOutputsParams) -> CompiledGrammar:
        """The grammar of a request. Raises InvalidRequestError naming the place of what can't be done."""
        source = source_of(asked)
        return self._known(source) or self._keep(source)

    def compile_calls(self, asked: ToolAnswer) -> CompiledGrammar:
        """The grammar of an answer with calls of tools. Raises InvalidRequestError naming the place of a bad schema."""
        source = source_of_calls(asked, list(self._tokenizer.special_texts.items()))
        known = self._known(source)
        if known is not None:
            return known
        for function in asked.functions:
            try:
                _start(source_of(StructuredOutputsParams(json=function.arguments)), self._vocabulary())
            except InvalidRequestError as error:
                error.param = function.place
                raise
        return self._keep(source)

    def _known(self, source: Source) -> CompiledGrammar | None:
        with self._lock:
            known = self._kept.get(source.text)
            if known is not None:
                self._kept.move_to_end(source.text)
            return known

    def _keep(self, source: Source) -> CompiledGrammar:
        made = CompiledGrammar(_start(source, self._vocabulary()), self._vocab_size, forces=source.forces)
        with self._lock:
            self._kept[source.text] = made
            while len(self._kept) > MAX_KEPT or sum(map(len, self._kept)) > MAX_KEPT_CHARACTERS:
                self._kept.popitem(last=False)
        return made

    def _vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._words is None:
                self._words = grammar_vocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)
            return self._words

    def _new_lock(self) -> None:
        self._lock = threading.Lock()


def _start(source: Source, words: LLTokenizer) -> LLMatcher:
    """A matcher at the beginning, which can go on."""
    from llguidance import LLMatcher

    schema = None if source.schema is None else parsed_schema(source.schema)
    if schema is not None:
        check_depth(schema)
        check_options(schema)
        check_numbers(schema)
        check_multiples(schema)
        place = unending(schema)
        if place is not None:
            raise _refused(
                source, f"{place} needs a value of itself within itself, without end", "make the inner one optional"
            )
    for fuel in FUEL:
        matcher = LLMatcher(words, source.text, log_level=0, limits=_limits(fuel))
        problem = short_error(matcher) if matcher.is_error() else _problem(matcher, source.forces)
        if not problem:
            return matcher
        if problem.startswith(BOUND):
            break
    if matcher.is_error() and schema is not None:
        problem = f"at {blamed(schema, problem, partial(_schema_error, source, words))}: {problem}"
    raise _refused(source, problem, "leave long fixed text out" if problem.startswith(BOUND) else source.hint)


def _problem(matcher: LLMatcher, forces: bool) -> str:
    """What is wrong with a grammar that is one; empty if nothing."""
    if forces and len(matcher.compute_ff_bytes()) > MAX_FORCED:
        return f"{BOUND} {MAX_FORCED} bytes"
    error = _probe(matcher.deep_copy())
    return f"it leads to no answer: {error}" if error else ""


def _probe(matcher: LLMatcher) -> str:
    """Why a grammar can't go on from its beginning, or soon after; empty if it can."""
    for _ in range(PROBED_TOKENS):
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        if matcher.is_error() or matcher.is_stopped():
            break
        matcher.consume_token(int(np.unpackbits(bits, bitorder="little").argmax()))
    return short_error(matcher) if matcher.is_error() else ""


def _schema_error(source: Source, words: LLTokenizer, schema: object) -> str:
    """What llguidance says of a schema; empty if nothing."""
    from llguidance import LLMatcher

    assert isinstance(schema, dict)
    try:
        return short_error(LLMatcher(words, source.of_schema(schema), log_level=0, limits=_limits()))
    except InvalidRequestError:
        return ""


def _limits(initial_fuel: int = FUEL[-1]) -> LLParserLimits:
    """One token takes at most some tens of milliseconds, and one grammar some tens of megabytes."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=initial_fuel,
        step_lexer_fuel=100_000,
        step_max_items=20_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def _refused(source: Source, why: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"{source.what}: {why}", hint=hint, param=source.param)
