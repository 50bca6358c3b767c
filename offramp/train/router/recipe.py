"""Every setting of a router's training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.embed import check_depths
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_delta, check_risk
from offramp.exits.certificate import SamplingSettings
from offramp.params import check_choice, check_int, check_number

AUTO = "auto"
RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Impossible values raise InvalidRequestError."""

    kind: str = AUTO  # the best of all that learn
    depths: tuple[int, ...] = ()  # that are tried; none: half, three quarters and all of the layers
    little: str | None = None
    big: str | None = None
    held_out: float = 0.4  # share of the prompts, for figures and certificates
    risks: tuple[float, ...] = ()
    sampling: SamplingSettings | None = None  # how the recorded answers were drawn, that risks are about
    max_tokens: int | None = None  # of these, at most; None: up to the context's end
    big_model: str | None = None  # that gave the big one's; None: it is elsewhere, or nobody says
    delta: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, (AUTO, *ROUTERS))
        check_number("held_out", self.held_out, 0.0, 1.0, open_low=True, open_high=True)
        check_delta(self.delta)
        check_int("seed", self.seed, 0, 2**63 - 1)
        for risk in self.risks:
            check_risk(risk)
        check_int("max_tokens", self.max_tokens, 1, 2**31 - 1, optional=True)
        self._check_answers()

    def _check_answers(self) -> None:
        """A risk needs to know what it is about, and nothing else looks at that."""
        if self.risks and self.sampling is None:
            raise InvalidRequestError(
                "a risk, but nothing says how the recorded answers were drawn",
                hint="name their temperature, 0 if they were greedy, and what else was set",
                param="temperature",
            )
        told = {"temperature": self.sampling, "max_tokens": self.max_tokens, "big_model": self.big_model}
        for name, value in told.items():
            if value is not None and not self.risks:
                hint = "leave it out, or name a risk: only a certificate is for answers that are made in one way"
                raise InvalidRequestError(f"{name} without a risk", hint=hint, param=name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """That are tried."""
        return tuple(name for name in ROUTERS if name != RANDOM) if self.kind == AUTO else (self.kind,)

    def depths_of(self, num_layers: int) -> tuple[int, ...]:
        """That are tried in a model of so many layers."""
        depths = self.depths or tuple(sorted({max(1, part * num_layers // 4) for part in (2, 3, 4)}))
        check_depths(depths, num_layers)
        return depths

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
