"""A way of leaving early at work: an engine of its own over the one loaded model, timed step by step.

All contestants write the same K/V pages. That is sound because each runs its requests to the end before another one
begins, and none keeps a prefix cache. Their thresholds are frozen, so nothing is learned from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count

from benchmarks.driving import drive
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.core import DraftParams, ExitParams, Request, SamplingParams, TokenEvent
from offramp.draft import OFF
from offramp.engine.engine import Engine
from offramp.engine.exit_points import ExitBatching
from offramp.engine.statistics import Statistics
from offramp.exits.frozen import FrozenPolicy
from offramp.llm.loading import LoadedModel
from offramp.native.sampling import sample_rows

POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Setting:
    """How tokens leave; without a policy none does."""

    policy: FrozenPolicy | None = None
    batching: ExitBatching = "compact"


FULL = Setting()


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine counted and timed, up to one time or over one span."""

    steps: int
    run_s: float
    step_s: float
    asked: int  # rows at exit points
    headed: int  # of those, rows whose head ran
    propagated: int
    paid: int
    forced: int
    stays: int  # rows held by others

    @classmethod
    def read(cls, statistics: Statistics) -> Counts:
        return cls(
            statistics.num_steps,
            statistics.run_seconds,
            statistics.step_seconds,
            statistics.num_asked_per_layer.total(),
            statistics.num_head_rows_per_layer.total(),
            statistics.num_propagated_rows,
            statistics.num_paid_debts,
            statistics.num_forced_rows,
            statistics.num_involuntary_stays,
        )

    def since(self, before: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) - getattr(before, each.name) for each in fields(Counts)))


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One run. Seconds from its start; decoding is what comes after every stream has its first token."""

    token_ids: list[list[int]]
    layers: list[list[int]]  # run for each token
    first: float
    total: float
    decoded: int  # tokens that came after `first`
    counts: Counts  # while decoding

    @property
    def decode_s(self) -> float:
        return self.total - self.first


class Contestant:
    """Answers at most `streams` prompts at once under one setting."""

    def __init__(self, loaded: LoadedModel, setting: Setting, *, streams: int) -> None:
        assert setting.policy is None or loaded.exits is not None, "a pack is loaded"
        self._loaded = loaded
        self._policy = None if setting.policy is None else POLICY
        exits = loaded.exits
        policies = {} if setting.policy is None or exits is None else {POLICY: exits.policy(setting.policy)}
        self._engine = Engine(
            loaded.executor,
            max_context=loaded.max_context,
            max_num_seqs=streams,
            exit_policies=policies,
            exit_batching=setting.batching,
            sample_rows=sample_rows,
            prefix_cache=False,
        )
        self._numbers = count()

    def run(self, prompts: Sequence[CalibrationPrompt], new_tokens: int) -> Sample:
        """All prompts at once, greedy, each to its end token or length."""
        engine, depth = self._engine, self._loaded.config.num_layers
        requests = [self._request(prompt, new_tokens) for prompt in prompts]
        layers: dict[str, list[int]] = {request.request_id: [] for request in requests}

        def hear(event: TokenEvent) -> None:
            deep = depth if event.exit_layer is None else event.exit_layer
            layers[event.request_id] += [deep] * len(event.token_ids)

        ran = drive(engine, requests, Counts.read, hear)
        counts = ran.at_end.since(ran.at_first)
        return Sample(ran.token_ids, list(layers.values()), ran.first, ran.total, ran.decoded, counts)

    def _request(self, prompt: CalibrationPrompt, new_tokens: int) -> Request:
        return Request(
            request_id=str(next(self._numbers)),
            prompt_token_ids=prompt.token_ids,
            params=SamplingParams(temperature=0, max_tokens=new_tokens, seed=0),
            eos_token_ids=self._loaded.eos_token_ids,
            seed=prompt.seed,
            drafting=DraftParams(drafter=OFF),
            exits=ExitParams(policy=self._policy),
        )
