"""Every setting of a training of exits, as it is kept in the pack."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from offramp.errors import InvalidRequestError
from offramp.exits.pack_config import PredictorKind
from offramp.train.finite import check_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides the outcome, besides the model, the prompts and, through minutes, the machine."""

    seed: int = 0
    layers: tuple[int, ...] = ()  # exit points: layers before each exit
    rank: int = 128  # of the adapters
    vocabulary: int = 8192  # tokens that the heads know at most
    coverage: float = 0.999  # share of the answers' tokens that they know, if so many suffice
    predictors: PredictorKind | None = "mlp"
    width: int = 32  # of a perceptron's inner layer
    max_tokens: int = 128  # of an answer
    temperature: float = 0.0  # of the answers; 0 is greedy
    minutes: float = 40.0  # of computing, for everything together
    held_out: float = 0.1  # share of prompts kept for validation, and as many for predictors
    batch_rows: int = 512
    learning_rate: float = 2e-3
    patience: int = 2  # epochs without a better validation loss before an exit's training ends
    epochs: int = 30  # at most

    def __post_init__(self) -> None:
        check_finite(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


ANSWER_SHARE = 0.3
"""Of the minutes: what generating answers may take. What it leaves goes to training."""


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Five exit points in the deeper part of the model: earlier ones of a stock model see too little."""
    points = {round(num_layers * share) for share in (0.4, 0.55, 0.7, 0.8, 0.9)}
    return tuple(sorted(point for point in points if 1 <= point < num_layers)) or (1,)


def check_layers(layers: tuple[int, ...], num_layers: int) -> None:
    """Raise InvalidRequestError for exit points that the model doesn't have."""
    if not layers or list(layers) != sorted(set(layers)) or not 1 <= layers[0] <= layers[-1] < num_layers:
        raise InvalidRequestError(
            f"exit points {list(layers)} are impossible", hint=f"rising numbers of layers in 1..{num_layers - 1}"
        )
