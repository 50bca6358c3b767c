"""Every setting of the training of a drafter: what both kinds share, and what an eagle has besides."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from offramp.errors import InvalidRequestError
from offramp.train.finite import check_finite

ANSWER_SHARE = 0.28
"""Of the minutes: what generating answers may take. What it leaves goes to training."""

LossName = Literal["forward_kl", "reverse_kl", "jsd", "tvd"]
"""What is made small between the target's distribution and the draft's."""
LOSS_NAMES: tuple[LossName, ...] = get_args(LossName)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterRecipe:
    """What decides the outcome for every kind, besides the model, the prompts and, through minutes, the machine."""

    seed: int = 0
    loss: LossName = "forward_kl"
    vocabulary: int = 8192  # tokens that are learned, at most: those most frequent in the answers
    coverage: float = 0.997  # share of the answers' tokens that are learned, if so many suffice
    max_tokens: int = 192  # of an answer
    temperature: float = 0.0  # of the answers that are drawn; 0 is greedy
    drawn: float = 0.5  # share of the prompts to learn from whose answers are drawn; the others' are greedy
    context: int  # tokens of a prompt, its last ones, that are looked at
    minutes: float = 90.0  # of computing, for everything together
    steps: int | None = None  # of the fit, whatever time they take; None: as many as there is time for
    held_out: float = 0.05  # share of prompts kept for validation; their answers are greedy
    batch_rows: int = 1024  # tokens looked at in a step
    learning_rate: float = 2e-3
    disk: int = 3 << 30  # bytes of captured states, at most
    workers: int = 0  # parts of a batch at once; 0: as many as threads

    def __post_init__(self) -> None:
        check_finite(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(DrafterRecipe):
    """An eagle's: a side layer over the target's hidden states."""

    taps: tuple[int, ...] = ()  # depths whose hidden states are seen, rising; the last one is the model's own
    width: int = 480  # of the layer's MLP
    window: int = 256  # places that the layer looks back
    context: int = 64
    unrolled: int = 3  # draft tokens that are learned one behind the other
    decay: float = 0.8  # weight of each over that of the one before


def default_taps(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and the final depth."""
    return tuple(sorted({min(2, num_layers), max(1, num_layers // 2), num_layers}))


def check_taps(taps: tuple[int, ...], num_layers: int) -> None:
    """Raise InvalidRequestError for depths that the model does not have, and unless the last is its own."""
    if not taps or list(taps) != sorted(set(taps)) or taps[0] < 1 or taps[-1] != num_layers:
        raise InvalidRequestError(
            f"taps {list(taps)} are impossible", hint=f"rising depths in 1..{num_layers}, the last one {num_layers}"
        )


def loss_name(text: str) -> LossName:
    """One of the losses. Raises InvalidRequestError naming all."""
    for name in LOSS_NAMES:
        if name == text:
            return name
    raise InvalidRequestError(f"--loss {text!r} is impossible", hint=f"it takes {', '.join(LOSS_NAMES)}")
