"""Texts that earlier sequences produced, apart for each salt, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.core import Ids
from offramp.native.suffix import SuffixAutomaton

LEAST_BYTES = 1 << 14
"""A store of fewer bytes holds nothing."""


@dataclass(eq=False, slots=True)
class _Generation:
    salt: str
    automaton: SuffixAutomaton


class TextStore:
    """A salt's texts lie in two generations: the younger grows, and when it is full the older makes room.

    So nothing is ever rebuilt. Where many salts share the memory, the generation begun first goes, whosever it is.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._begun: dict[_Generation, None] = {}  # all, in the order in which they were begun
        self._of_salt: dict[str, list[_Generation]] = {}  # one or two, the older first

    @property
    def num_bytes(self) -> int:
        """Held by all salts together."""
        return self._num_bytes

    def automata(self, salt: str) -> list[SuffixAutomaton]:
        """What may be read under this salt, the younger generation first."""
        return [generation.automaton for generation in reversed(self._of_salt.get(salt, []))]

    def add(self, salt: str, token_ids: Ids) -> None:
        """Keep a text; of one that is too long for a generation, as much as fits."""
        if self._max_bytes < LEAST_BYTES:
            return
        generations = self._of_salt.get(salt)
        young = generations[-1] if generations else self._begin(salt)
        if self._extend(young, token_ids) < len(token_ids):
            self._extend(self._begin(salt), token_ids)
        while self._num_bytes > self._max_bytes:
            self._drop(next(iter(self._begun)))

    def _extend(self, generation: _Generation, token_ids: Ids) -> int:
        automaton = generation.automaton
        before = automaton.num_bytes
        automaton.begin_text()
        taken = automaton.extend(token_ids)
        self._num_bytes += automaton.num_bytes - before
        return taken

    def _begin(self, salt: str) -> _Generation:
        generations = self._of_salt.setdefault(salt, [])
        if len(generations) == 2:
            self._drop(generations[0])
        young = _Generation(salt, SuffixAutomaton(self._max_bytes // 2))
        generations.append(young)
        self._begun[young] = None
        self._num_bytes += young.automaton.num_bytes
        return young

    def _drop(self, generation: _Generation) -> None:
        generations = self._of_salt[generation.salt]
        generations.remove(generation)
        if not generations:
            del self._of_salt[generation.salt]
        del self._begun[generation]
        self._num_bytes -= generation.automaton.num_bytes
