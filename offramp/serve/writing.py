"""The shape of an answer: what chat and completions write differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from offramp.llm.output import RequestOutput, StreamDelta

Choice = dict[str, object]
"""One entry of an answer's or a chunk's `choices`."""


class Writer(Protocol):
    """Writes one answer, whole or in chunks. Prompt p's choice c has the index p * n + c."""

    id_prefix: str
    whole_kind: str  # the `object` of a whole answer
    chunk_kind: str

    def whole(self, outputs: Sequence[RequestOutput]) -> dict[str, object]:
        """`choices`, and what else the answer has at its top level."""
        ...

    def chunks(self, prompt: int, delta: StreamDelta) -> list[Choice]:
        """What a step added, a chunk each; the last of a choice, and no other, has a finish_reason."""
        ...
