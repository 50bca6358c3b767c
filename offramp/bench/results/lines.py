"""The lines of a run: raw facts, one JSON object each with its `kind`. Figures are derived from them, never stored.

Rounds count from 0. In a round every method takes its turn: all items of a workload, so many at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PLAIN = "plain"
"""The method that all others are compared with: the same weights, nothing dynamic."""
PERPLEXITY = "perplexity"
"""The metric that judges weights, not answers: of an item's reference. Less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """What is run, and where; first in the file. Lines of a run with other facts can't be added.

    Each sitting of a run that was interrupted begins with one of its own.
    """

    model: str
    source_hash: str
    methods: Mapping[str, Mapping[str, object]]  # by name: options as `offramp serve` has them
    exactness: Mapping[str, str]  # by name: what the method promises
    workloads: Mapping[str, Mapping[str, object]]  # by name: sha256, tasks, metrics, refused
    streams: tuple[int, ...]
    rounds: int
    max_tokens: int
    provenance: Mapping[str, object]  # machine, versions, time, load
    kind: str = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """One method's turn: `seconds` from the first request to the last token.

    A step counts as decoding if all that ran in it had its first token before it: no prompt ran. `decode_seconds` are
    the times from the end of the step before to the end of such a step, `decoded_tokens` what came in them. At one
    stream that is each answer's time from its first token to its last, and all its tokens but the first.
    """

    workload: str
    method: str
    streams: int
    round: int
    seconds: float
    prompt_tokens: int
    output_tokens: int
    decode_seconds: float
    decoded_tokens: int
    peak_bytes: int | None  # resident memory of the method's process so far
    joules: float | None  # of the machine's processors; None where it doesn't tell
    note: str | None = None  # why the method ran as mode full, not as it promises
    kind: str = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """One answer of a turn. Times from when its request was handed to the engine."""

    workload: str
    task: str
    item: str
    method: str
    streams: int
    round: int
    prompt_tokens: int
    token_ids: tuple[int, ...]
    finish_reason: str
    first_seconds: float
    steps: tuple[tuple[float, int], ...]  # milliseconds, and how many tokens came then
    drafted: tuple[int, ...] = ()  # draft tokens by position in a draft; a tree may have several at one
    accepted: tuple[int, ...] = ()  # by position
    reached: tuple[int, ...] = ()  # drafts that had a token there, by position
    num_drafts: int = 0
    num_emitted: int = 0  # tokens of the steps in which they ran
    exit_layers: tuple[int, ...] = ()  # a token: layers run; empty where all ran all
    text: str | None = None  # in round 0 of the fewest streams
    pieces: tuple[str, ...] = ()  # where there is a text: what each token added to it
    kind: str = "item"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLine:
    """How good an answer is, by one metric; answers are the same in all rounds."""

    workload: str
    task: str
    item: str
    method: str
    metric: str
    value: float
    kind: str = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """What did not run: an item, or with None all that the method had to do from this turn on."""

    workload: str
    method: str
    item: str | None
    streams: int
    round: int
    reason: str
    kind: str = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """A step of so many rows behind a context, all layers and the head: measured, and by the cost model."""

    rows: int
    context: int
    measured_ms: float
    predicted_ms: float
    kind: str = "cost"


Line = RunLine | TurnLine | ItemLine | ScoreLine | FailureLine | CostLine
