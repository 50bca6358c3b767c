"""The seams of the engine's loop. `LayerExecutor` is in `model/executor.py`."""

from __future__ import annotations

from collections import abc
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.core.ids import Ids
from offramp.core.request import Sequence, SequenceKey
from offramp.core.speculation import DraftAsk, Place, StepLoad, Verdict
from offramp.core.tree import TokenTree


class Drafter(Protocol):
    """Proposes tokens cheaply. Whatever it proposes, the output stays that of plain decoding."""

    @property
    def max_nodes(self) -> int:
        """Most nodes it ever proposes for one sequence; with 0 it is never called."""
        ...

    def propose(self, asks: abc.Sequence[DraftAsk]) -> abc.Sequence[TokenTree]:
        """One tree an ask, within its bounds (the engine clamps)."""
        ...

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Learn what became of a proposal; called once for each ask that was proposed for.

        `tree` is the whole proposal, within the ask's bounds and the vocabulary, whether all of it ran, a part, or
        none: `verdict.token_ids` are the tokens that followed in any case.
        """
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended: learn from it, and drop all state kept for it. It may never have been asked about.

        Nobody tells of requests whose drafts are off.
        """
        ...


class LengthController(Protocol):
    """Decides how much of each proposal is worth verifying. Whatever it decides, the output stays the same."""

    def wants(self, asks: abc.Sequence[DraftAsk]) -> abc.Sequence[DraftAsk]:
        """Those that the drafter shall be asked now, perhaps with lower bounds."""
        ...

    def choose(
        self, asks: abc.Sequence[DraftAsk], trees: abc.Sequence[TokenTree], load: StepLoad
    ) -> abc.Sequence[TokenTree]:
        """Of each proposal a part that holds the ancestors of its nodes; all proposals of a step together."""
        ...

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """Learn what followed; called once for each ask of `choose`, with the whole proposal."""
        ...

    def forget(self, key: SequenceKey) -> None:
        """The sequence ended: drop all state kept for it."""
        ...


class Verifier(Protocol):
    """Decides which drafts stand."""

    def judge(self, places: abc.Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        """One verdict a place; logits [rows, vocab]. Pure: changes neither."""
        ...


class Little(Protocol):
    """A little model that writes, and the policies by which the big one lets stand what it wrote.

    Which tokens come of it depends on the text, the request and its policy alone: not on how much of what was written
    ran as rows, nor on other sequences, nor on preemption.
    """

    @property
    def policies(self) -> abc.Collection[str]:
        """Their names."""
        ...

    def read(self, texts: abc.Sequence[tuple[SequenceKey, Ids]]) -> None:
        """These will be continued later: leading tokens of texts that it will be asked to write behind."""
        ...

    def propose(self, asks: abc.Sequence[DraftAsk]) -> abc.Sequence[TokenTree]:
        """What it writes behind each text: a chain, perhaps empty, and one longer than the ask's bounds at most.

        The engine runs as much of it as has room, perhaps nothing.
        """
        ...

    def judge(self, places: abc.Sequence[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        """Which of it stands, at the places of the asks just answered; logits [rows, vocab]. Changes nothing."""
        ...

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        """What became of what it wrote; called once for each ask, before the next one."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended: drop all state kept for it. It may never have been asked about."""
        ...


class CostModel(Protocol):
    """What executor calls cost on this machine, in seconds; never falls with rows, layers or context."""

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        """One call: rows with `context` tokens before each through so many layers, then the head for all rows or fewer.

        `seconds(n, 0, 0)` is the head alone, `num_head_rows=0` the layers alone.
        """
        ...

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        """Learn what such a call took."""
        ...
