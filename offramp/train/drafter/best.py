"""The weights whose drafts stood best so far: measured along the way, kept beside the checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from offramp.train.drafter.validation import expected_tokens, line
from offramp.train.exits.work import WorkFolder
from offramp.train.say import Say
from offramp.train.state import TrainingState
from offramp.whole_file import whole_file

BEST = "best.pt"


@dataclass(frozen=True, slots=True)
class Best:
    """The step after which drafts stood best, and how many of their tokens did."""

    step: int
    tokens_a_draft: float


class BestWeights:
    """Measures what is trained when asked to, notes the curve, keeps the best. Of equal ones the latest counts."""

    def __init__(self, state: TrainingState, work: WorkFolder, rates: Callable[[], list[float]], say: Say) -> None:
        """`rates` measures what `state` trains. What lies in the folder counts as far as the state has come."""
        self._state = state
        self._work = work
        self._rates = rates
        self._say = say
        self._best = self._read()

    @property
    def measured(self) -> bool:
        """Whether the weights of this step have been."""
        curve = self._work.state.get("curve", [])
        return self._best is not None and any(point["step"] == self._state.step for point in curve)

    def measure(self, num_learned: int) -> None:
        """One point more of the curve; `num_learned` tokens were learned so far, repeated ones each time."""
        rates, step = self._rates(), self._state.step
        tokens = expected_tokens(rates)
        if self._best is None or tokens >= self._best.tokens_a_draft:
            self._keep(Best(step, tokens))
        minutes = round(self._state.clock.seconds / 60, 1)
        point = {"step": step, "tokens": num_learned, "minutes": minutes, "rates": [round(rate, 4) for rate in rates]}
        curve = [each for each in self._work.state.get("curve", []) if each["step"] < step]
        self._work.note(curve=[*curve, point], seconds=self._state.clock.seconds)
        self._say(f"step {step}: {line(rates)}")

    def take(self) -> Best:
        """Put the best weights in the place of the last ones."""
        assert self._best is not None, "nothing was measured"
        values = torch.load(self._work.path / BEST, weights_only=True)
        with torch.no_grad():
            for name, tensor in self._state.trained.items():
                tensor.copy_(values["trained"][name])
        self._say(f"kept: step {self._best.step} of {self._state.step}, {self._best.tokens_a_draft:.2f} tokens a draft")
        return self._best

    def _keep(self, best: Best) -> None:
        content = io.BytesIO()
        trained = {name: tensor.detach() for name, tensor in self._state.trained.items()}
        torch.save({"step": best.step, "tokens_a_draft": best.tokens_a_draft, "trained": trained}, content)
        with whole_file(self._work.path / BEST) as file:
            file.write(content.getbuffer())
        self._best = best

    def _read(self) -> Best | None:
        """None also for one that lies ahead: the steps to it were lost, and are being made again."""
        path = self._work.path / BEST
        if not path.exists():
            return None
        values: dict[str, Any] = torch.load(path, weights_only=True)
        return Best(values["step"], values["tokens_a_draft"]) if values["step"] <= self._state.step else None
