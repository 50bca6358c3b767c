"""Answers as an engine really gives them: many prompts at once, under one exit policy or at full depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from offramp.calibrate.prompts import CalibrationPrompt
from offramp.core import DraftParams, ExitParams, Ids, Request, SamplingParams
from offramp.draft import OFF
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.model.executor import LayerExecutor
from offramp.sample.sampler import RowJob
from offramp.verify.exact import SampleRows

Tell = Callable[[int, int], None]
"""(done, all of them): how far something is."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a prompt was answered; ends as the engine ended it, an end token included."""

    prompt: CalibrationPrompt
    token_ids: Ids  # [tokens], one at least
    layers: Ids  # [tokens], run for each token
    num_little: int = 0  # tokens that a little model wrote

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def text_ids(self) -> Ids:
        """Prompt and answer, but for the last token, which no row runs."""
        return np.concatenate([self.prompt.token_ids, self.token_ids[:-1]])

    def row(self, output: int) -> int:
        """Which row of `text_ids` yields this token of the answer."""
        return len(self.prompt.token_ids) - 1 + output


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rig:
    """An engine, its executor, and how tokens are drawn besides the seed of each prompt."""

    executor: LayerExecutor
    engine: Engine
    params: SamplingParams
    eos_token_ids: frozenset[int]
    sample_rows: SampleRows

    @property
    def num_layers(self) -> int:
        return self.executor.config.num_layers

    def job(self, answer: Answer, output: int) -> RowJob:
        """What decides this token of an answer, besides the logits, given all before it."""
        return RowJob(
            params=self.params,
            seed=answer.prompt.seed,
            position=output,
            prompt_ids=answer.prompt.token_ids,
            output_ids=answer.token_ids[:output],
            eos_token_ids=self.eos_token_ids,
        )

    def first_other(self, answer: Answer) -> int | None:
        """The first token that may not be plain decoding's; None: all are."""
        early = np.flatnonzero(answer.layers < self.num_layers)
        return int(early[0]) if len(early) else None

    def request(self, name: str, prompt: CalibrationPrompt, policy: str | None) -> Request:
        """Under one of the engine's policies, or at full depth."""
        return Request(
            request_id=name,
            prompt_token_ids=prompt.token_ids,
            params=self.params,
            eos_token_ids=self.eos_token_ids,
            seed=prompt.seed,
            drafting=DraftParams(drafter=OFF),
            exits=ExitParams(policy=policy),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LittleRig(Rig):
    """Policies are those under which a little model writes."""

    def first_other(self, answer: Answer) -> int | None:
        return 0 if answer.num_little else None

    def request(self, name: str, prompt: CalibrationPrompt, policy: str | None) -> Request:
        return replace(Rig.request(self, name, prompt, None), big_little=policy)


@dataclass(slots=True)
class _Heard:
    token_ids: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    num_little: int = 0


def answer_all(rig: Rig, prompts: Sequence[CalibrationPrompt], policy: str | None, tell: Tell) -> list[Answer]:
    """Answers in order. Whatever ends it, nothing of it runs on.

    Raises what went wrong with a prompt (NumericError above all), naming its line.
    """
    heard = {str(number): _Heard() for number in range(len(prompts))}
    num_done = 0
    try:
        for name, prompt in zip(heard, prompts, strict=True):
            rig.engine.add_request(rig.request(name, prompt, policy))
        while rig.engine.has_work:
            for event in rig.engine.step():
                if event.error is not None:
                    raise located(event.error, prompts[int(event.request_id)])
                layers = rig.num_layers if event.exit_layer is None else event.exit_layer
                heard[event.request_id].token_ids += event.token_ids
                heard[event.request_id].layers += [layers] * len(event.token_ids)
                heard[event.request_id].num_little += event.written.num_little if event.written else 0
                if event.finish_reason is not None:
                    num_done += 1
                    tell(num_done, len(prompts))
    finally:
        end(rig.engine, heard)
    return [
        Answer(prompt, np.array(told.token_ids, np.int32), np.array(told.layers, np.int32), told.num_little)
        for prompt, told in zip(prompts, heard.values(), strict=True)
    ]


def end(engine: Engine, names: Iterable[str]) -> None:
    """Abort what still runs of these requests, so that the engine is idle."""
    for name in names:
        engine.abort(name)
    while engine.has_work:
        engine.step()


def located(error: OfframpError, prompt: CalibrationPrompt) -> OfframpError:
    """The error, naming the line of the prompt."""
    return type(error)(f"{prompt.where}: {error.message}", hint=error.hint)
