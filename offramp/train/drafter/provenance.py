"""What is kept beside a trained drafter: how it was made, and how its drafts stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from offramp.prompt_lines import file_hash
from offramp.train.drafter.fit import Fitted
from offramp.train.drafter.material import Material, Prompts
from offramp.train.drafter.recipe import DrafterRecipe
from offramp.train.drafter.validation import expected_tokens
from offramp.train.exits.training import Training

R = TypeVar("R", bound=DrafterRecipe)


@dataclass(frozen=True, slots=True)
class Stood:
    """How drafts stood on texts kept aside: for the 1st, 2nd, ... token the share, and of how many."""

    rates: Sequence[float]
    tested: Sequence[int]


def provenance(
    training: Training[R], prompts: Prompts, material: Material, fitted: Fitted, stood: Stood
) -> dict[str, Any]:
    """As JSON."""
    return {
        "recipe": training.recipe.as_json(),
        "prompts": {
            "file": prompts.file.name,
            "sha256": file_hash(prompts.file),
            "answered": material.num_answers,
        },
        "tokens": material.num_tokens,
        "weights": dict(training.loaded.formats),
        "steps": fitted.steps,
        "best": {"step": fitted.best.step, "tokens_a_draft": round(fitted.best.tokens_a_draft, 3)},
        "minutes": round(training.clock.seconds / 60, 1),
        "validation": {
            "texts": len(material.kept),
            "tested": list(stood.tested),
            "accepted": [round(rate, 4) for rate in stood.rates],
            "tokens_a_draft": round(expected_tokens(stood.rates), 3),
        },
        "curve": training.work.state["curve"],
    }
