"""What drafters with weights have in common: proposals kept until they are judged, and an end where they break."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import Generic, TypeVar

from offramp.core import NO_DRAFT, DraftAsk, Sequence, SequenceKey, TokenTree
from offramp.draft.drawing import DraftChain
from offramp.draft.failures import FAILURES, tell_failure
from offramp.draft.plans import DraftPlans

Chain = TypeVar("Chain", bound=DraftChain)


class WeightedDrafter(ABC, Generic[Chain]):
    """`what` it is, for people; `plans` choose lengths, of at most `max_len`."""

    def __init__(self, what: str, plans: DraftPlans, max_len: int) -> None:
        self._what = what
        self._plans = plans
        self._max_len = max_len
        self._proposed: dict[SequenceKey, Chain] = {}

    @property
    def max_nodes(self) -> int:
        """0 once it has failed."""
        return self._max_len

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        if not self._max_len:
            return [NO_DRAFT] * len(asks)
        try:
            chains = self._propose(asks)
        except FAILURES as error:
            tell_failure(self._what, error)
            self._max_len = 0
            self._proposed.clear()
            self._clear()
            return [NO_DRAFT] * len(asks)
        self._proposed |= chains
        return [chains[ask.key].tree() if ask.key in chains else NO_DRAFT for ask in asks]

    def goodput(self, ask: DraftAsk, num_alike: int) -> float:
        """As `DraftPlans.goodput` says; 0 where it can't draft."""
        return self._plans.goodput(ask, num_alike) if self._max_len and self._fits(ask) else 0.0

    def share(self, key: SequenceKey, num_tokens: int) -> None:
        """So many of the tokens that follow others drafted for nothing; told before `observe`."""
        self._plans.share(key, num_tokens)

    def forget(self, sequence: Sequence) -> None:
        self._proposed.pop(sequence.key, None)
        self._plans.forget(sequence.key)
        self._drop(sequence.key)

    @abstractmethod
    def _propose(self, asks: Items[DraftAsk]) -> Mapping[SequenceKey, Chain]:
        """Chains of those that get a draft. Raises one of `FAILURES` where it breaks."""

    def _fits(self, ask: DraftAsk) -> bool:
        """Whether it can draft for that sequence."""
        return True

    def _drop(self, key: SequenceKey) -> None:
        """Give up what is held for a sequence."""

    def _clear(self) -> None:
        """Give up what is held for all: it drafts no more."""
