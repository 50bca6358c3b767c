"""A stand that runs nothing: methods have a speed each, turns have noise, and the clock is a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from offramp.bench.run.method import Method
from offramp.bench.run.turn import Facts
from offramp.bench.tune.candidates import Space
from offramp.bench.tune.compare import Timed
from offramp.bench.tune.rounds import Turned
from offramp.errors import OfframpError
from offramp.llm.model_flags import ModelFlags
from tests.bench.run.acted import FACTS as ACTED

FACTS = replace(ACTED, source_hash="ab12", weights={"q8": 3}, threads=2, kernels="portable")

Speed = Callable[[Method], float]
"""Of a method, over plain decoding's."""


class SimulatedStand:
    """Turns of `noise` (a standard deviation of their logarithm) on a machine that drifts, now slower, now faster."""

    def __init__(
        self,
        speed: Speed,
        *,
        seconds: float = 600.0,
        num_prompts: int = 60,
        noise: float = 0.03,
        seed: int = 0,
        start_seconds: float = 2.0,
        wrong: Mapping[str, str] | None = None,
    ) -> None:
        """`wrong` has methods that break: "start", "tokens", "prompt" or "mode"."""
        self._rng = np.random.default_rng(seed)
        self._speed = speed
        self._noise = noise
        self._seconds = self._rng.uniform(0.5, 1.0, num_prompts)
        self._tokens = self._rng.integers(40, 128, num_prompts)
        self._own_gain = np.exp(0.1 * self._rng.standard_normal(num_prompts))  # a drafter suits some prompts better
        self._drift = 0.0
        self._left = self.budget_seconds = seconds
        self._wrong = wrong or {}
        self.start_seconds = start_seconds
        self.running: set[str] = set()
        self.turns: list[tuple[str, list[int]]] = []
        self.bad_prompts: set[int] = set()

    def begin(self, plain: Method) -> Facts:
        self._start(plain)
        return FACTS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.running.clear()

    def take(self, method: Method, prompts: Sequence[int]) -> Turned:
        wrong = self._wrong.get(method.name)
        if method.name not in self.running:
            self._start(method)
        self.turns.append((method.name, list(prompts)))
        answered = [prompt for prompt in prompts if prompt not in self.bad_prompts]
        gain = 1.0 if self._speed(method) == 1.0 else self._own_gain[answered]
        self._drift = 0.95 * self._drift + 0.02 * self._rng.standard_normal()
        noise = np.exp(self._drift + self._noise * self._rng.standard_normal())
        seconds = float(np.sum(self._seconds[answered] / (self._speed(method) * gain)) * noise) + 1e-6
        self._left -= seconds
        tokens = int(self._tokens[answered].sum())
        answers = {prompt: (prompt, 0 if wrong != "tokens" else 1) for prompt in answered}
        failed = {prompt: "too long" for prompt in prompts if prompt in self.bad_prompts}
        if wrong == "prompt":
            failed[answered[0]] = "broken"
            del answers[answered[0]]
        note = "not certified" if wrong == "mode" else None
        return Turned(timed=Timed(seconds, tokens), answers=answers, failed=failed, note=note)

    def end(self, method: Method) -> None:
        self.running.remove(method.name)

    def _start(self, method: Method) -> None:
        self._left -= self.start_seconds
        if self._wrong.get(method.name) == "start":
            raise OfframpError("it does not start", hint="nothing helps")
        self.running.add(method.name)

    def seconds_left(self) -> float:
        return self._left


def space(**changes: object) -> Space:
    given: dict[str, object] = {"common": ModelFlags(), "formats": ("auto",), "streams": 1, "num_cpus": 2}
    return Space(**(given | changes))  # type: ignore[arg-type]


def by_words(speeds: Mapping[str, float]) -> Speed:
    """The product of the speeds of the words in a method's name."""

    def speed(method: Method) -> float:
        product = 1.0
        for word in method.name.split():
            product *= speeds.get(word, 1.0)
        return product

    return speed
