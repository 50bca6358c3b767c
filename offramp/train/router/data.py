"""Recorded outcomes from a file: what each model made of each prompt, or which of two was preferred."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from offramp.collaborate.router.outcomes import Outcomes
from offramp.errors import InvalidRequestError
from offramp.params import refused, shown
from offramp.prompt_lines import PromptLine, prompt_lines

HINT = (
    'a line looks like {"prompt": "...", "weak_correct": false, "strong_correct": true}, '
    'or has "quality": {"NAME": 0.5, ...}, or "model_a", "model_b" and "winner"'
)
LITTLE, BIG = "little", "big"
"""What the models of weak_correct and strong_correct are called."""

WINNERS: Mapping[str, tuple[float, float]] = {
    "model_a": (1.0, 0.0),
    "model_b": (0.0, 1.0),
    "tie": (0.5, 0.5),
    "tie (bothbad)": (0.5, 0.5),
}


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeFile:
    """Prompts, texts or conversations, with their outcomes in the same order."""

    lines: tuple[PromptLine, ...]
    outcomes: Outcomes

    def pair(self, little: str | None, big: str | None) -> tuple[str, str]:
        """The models to choose between. Raises InvalidRequestError where that is not clear."""
        models = self.outcomes.models
        if little is None and big is None and set(models) == {LITTLE, BIG}:
            return LITTLE, BIG
        for name, value in (("little", little), ("big", big)):
            if value not in models:
                raise refused(name, value, f"one of the data's models: {', '.join(models)}")
        assert little is not None
        assert big is not None
        if little == big:
            raise refused("big", big, "another model than the little one")
        return little, big


def read_outcomes(path: Path) -> OutcomeFile:
    """All lines of a file. Raises InvalidRequestError naming the line, or the file without any."""
    lines = tuple(prompt_lines(path, hint=HINT))
    if not lines:
        raise InvalidRequestError(f"{path} has no lines", hint=HINT, param="data")
    found = [_qualities(line) for line in lines]
    models = tuple(dict.fromkeys(name for qualities in found for name in qualities))
    if len(models) < 2:
        raise InvalidRequestError(f"{path} has outcomes of {', '.join(models) or 'no model'} alone", hint=HINT)
    table = [[qualities.get(name, math.nan) for name in models] for qualities in found]
    return OutcomeFile(lines, Outcomes(models, np.array(table, dtype=np.float64)))


def _qualities(line: PromptLine) -> dict[str, float]:
    """Quality by model."""
    fields = line.fields
    if "weak_correct" in fields or "strong_correct" in fields:
        return {LITTLE: _quality(line, "weak_correct"), BIG: _quality(line, "strong_correct")}
    if "quality" in fields:
        table = fields["quality"]
        if not isinstance(table, Mapping) or not table:
            raise _wrong(line, "quality", table, "an object of a number in [0, 1] for each model")
        return {name: _number(line, f"quality.{name}", value) for name, value in table.items()}
    if "winner" in fields:
        names = [fields.get(name) for name in ("model_a", "model_b")]
        one, other = names
        if not isinstance(one, str) or not isinstance(other, str) or not one or not other or one == other:
            raise _wrong(line, "model_a", one, "a name, and model_b another one")
        winner = fields["winner"]
        if not isinstance(winner, str) or winner not in WINNERS:
            raise _wrong(line, "winner", winner, f"one of {', '.join(WINNERS)}")
        return dict(zip((one, other), WINNERS[winner], strict=True))
    raise InvalidRequestError(f"{line.where} has no outcomes", hint=HINT, param="data")


def _quality(line: PromptLine, name: str) -> float:
    return _number(line, name, line.fields.get(name))


def _number(line: PromptLine, name: str, value: object) -> float:
    """True and false count 1 and 0."""
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise _wrong(line, name, value, "true, false, or a number in [0, 1]")
    return float(value)


def _wrong(line: PromptLine, name: str, value: object, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"{line.where}: {name}={shown(value)}", hint=f"{name} takes {wanted}", param="data")
