"""What models made of the same prompts: the data that routers learn from and are judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.errors import InvalidRequestError
from offramp.params import check_choice

Gains = NDArray[np.float64]  # [prompts], quality of the big model's answer less that of the little one's, in [-1, 1]


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Quality of each model's answer to each prompt, in [0, 1]; NaN where it gave none. A preference is 1 to 0."""

    models: tuple[str, ...]
    quality: NDArray[np.float64]  # [prompts, models]

    def __len__(self) -> int:
        return len(self.quality)

    def take(self, places: NDArray[np.int64]) -> Outcomes:
        """Those of some prompts."""
        return Outcomes(self.models, self.quality[places])

    def of(self, model: str) -> NDArray[np.float64]:
        """One model's quality."""
        check_choice("model", model, self.models)
        return self.quality[:, self.models.index(model)]

    def gains(self, little: str, big: str) -> Gains:
        """What the big one adds to each prompt; NaN where one of the two is missing."""
        gains: Gains = self.of(big) - self.of(little)
        return gains


def targets(gains: Gains) -> NDArray[np.float64]:
    """What scores are taught: 1 where the big model is better, 0 where the little one is, 1/2 for equals."""
    wanted: NDArray[np.float64] = (1 + gains) / 2
    return wanted


def losses(gains: Gains) -> NDArray[np.float64]:
    """What is lost where the little model answers; where it is the better one nothing is won back."""
    lost: NDArray[np.float64] = np.maximum(gains, 0.0)
    return lost


def check_learnable(gains: Gains) -> None:
    """Refuse data from which nothing can be learned, or by which no router can be judged."""
    if len(np.unique(gains)) < 2:
        what = "no prompts" if len(gains) == 0 else f"{len(gains)} prompts, all of one class"
        hint = "give outcomes in which the big model is better for some prompts, and not for others"
        raise InvalidRequestError(f"{what}: nothing tells them apart", hint=hint, param="data")
    if gains.sum() <= 0:
        hint = "check which of the models is the big one: it is not better on the whole"
        message = f"the big model adds {gains.mean():.3f} to a prompt's quality"
        raise InvalidRequestError(message, hint=hint, param="data")
