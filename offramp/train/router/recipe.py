"""Every setting of a router's training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.embed import check_depths
from offramp.exits.calibration import check_delta, check_risk
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
    delta: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, (AUTO, *ROUTERS))
        check_number("held_out", self.held_out, 0.0, 1.0, open_low=True, open_high=True)
        check_delta(self.delta)
        check_int("seed", self.seed, 0, 2**63 - 1)
        for risk in self.risks:
            check_risk(risk)

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
