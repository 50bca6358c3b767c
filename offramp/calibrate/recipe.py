"""What a calibration is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.calibrate.losses import LOSSES
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_delta, check_risk
from offramp.exits.frozen import FILLS
from offramp.exits.policy import Fill
from offramp.params import check_choice, check_int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Impossible values raise InvalidRequestError. `params` name the most tokens, and no seed: each prompt has its own.

    Each risk is certified on its own with confidence 1 - delta.
    """

    risks: Sequence[float]
    delta: float = 0.05
    loss: str = "tokens"
    fill: Fill = "deferred"
    params: SamplingParams
    seed: int = 0  # of the split, and with a prompt's number of its draws

    def __post_init__(self) -> None:
        if not self.risks:
            raise InvalidRequestError("there is no risk to certify", hint="name one, such as --risk 0.05", param="risk")
        for risk in self.risks:
            check_risk(risk)
        check_delta(self.delta)
        check_choice("loss", self.loss, LOSSES)
        check_choice("fill", self.fill, FILLS)
        check_int("seed", self.seed, 0, 2**64 - 1)
        check_int("max_tokens", self.params.max_tokens, 1)
        if self.params.stop or self.params.stop_token_ids or self.params.logit_bias or self.params.n != 1:
            raise InvalidRequestError(
                "a calibration has one answer a prompt, without stop strings, stop ids or bias",
                hint="leave them out of the sampling settings",
            )


def fill_of(name: str) -> Fill:
    """The fill of that name. Raises InvalidRequestError."""
    check_choice("fill", name, FILLS)
    return FILLS[name]
