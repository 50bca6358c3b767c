"""What a method's process tells: about the model it loaded, and about a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A method's model, in memory."""

    model: str
    source_hash: str
    weights: Mapping[str, int]  # matrices by the format they run in
    kv: str
    threads: int
    kernels: str
    num_layers: int
    max_context: int
    chat: bool  # there is a chat template
    large_pages: bool  # of memory, for most of what the process holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer. Times from when its request was handed to the engine; the fields are those of `ItemLine`."""

    item: str
    prompt_tokens: int
    token_ids: tuple[int, ...]
    finish_reason: str
    first_seconds: float
    steps: tuple[tuple[float, int], ...]  # milliseconds, and how many tokens came then
    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    reached: tuple[int, ...] = ()
    num_drafts: int = 0
    num_emitted: int = 0
    exit_layers: tuple[int, ...] = ()
    text: str | None = None  # where it was asked for
    pieces: tuple[str, ...] = ()  # what each token added to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An item that could not be answered; the others were."""

    item: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a turn took, all its answers together; the fields are those of `TurnLine`."""

    seconds: float
    prompt_tokens: int
    output_tokens: int
    decode_seconds: float
    decoded_tokens: int
    peak_bytes: int | None
    joules: float | None
    note: str | None = None  # why the method did not run in the mode that it names


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """All of it."""

    taken: Taken
    answers: tuple[Answered, ...]
    failed: tuple[Failed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A word from a turn under way."""

    num_ended: int  # items, answered or failed
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What an item's reference is worth under the method's weights."""

    item: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error of ours, as the process has it."""

    message: str
    hint: str


Hear = Callable[[Heard], None]
