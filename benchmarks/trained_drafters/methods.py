"""The methods: the drafter pack alone, everything together, and what needs no training, beside plain decoding."""

from __future__ import annotations

from benchmarks.speculation.contestant import AUTO, PLAIN, Method

EAGLE = Method("eagle", "eagle", store=False, weights=True)
EVERYTHING = Method("auto, everything", "auto", weights=True)
SELF = Method("early_exit", "early_exit", store=False, weights=True)

GENERAL = (PLAIN, EAGLE, EVERYTHING, AUTO)
"""On general prompts; the last one has no trained weights."""
PARSER = (PLAIN, SELF, EVERYTHING)
"""On the prompts of a model that was trained for early exits."""
