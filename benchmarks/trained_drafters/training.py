"""What a trained drafter keeps of its training, whatever its kind."""

from __future__ import annotations

from benchmarks.session import Json


def training_facts(about: Json) -> Json:
    """How much it learned from, for how long, and how its drafts stood on what was kept aside."""
    return {
        "answered": about["prompts"]["answered"],
        **{name: about[name] for name in ("tokens", "steps", "minutes")},
        **{name: about["validation"][name] for name in ("tested", "accepted", "tokens_a_draft")},
    }
