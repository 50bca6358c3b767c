"""The checkpoint's recommended sampling, or ours where it has none."""

from __future__ import annotations

import pytest

from offramp import SamplingParams
from offramp.llm.defaults import recommended_params
from offramp.model.generation import GenerationDefaults

OURS = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=None)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (GenerationDefaults(eos_token_ids=(2,), bos_token_id=1), OURS),
        (GenerationDefaults(temperature=0.6), SamplingParams(temperature=0.6, max_tokens=9)),
        (GenerationDefaults(top_k=20), SamplingParams(top_k=20, max_tokens=9)),
        (GenerationDefaults(do_sample=True), OURS),
        (GenerationDefaults(do_sample=False), SamplingParams(temperature=0, max_tokens=9)),
        (
            GenerationDefaults(do_sample=False, temperature=0.6, top_p=0.9),
            SamplingParams(temperature=0, top_p=0.9, max_tokens=9),
        ),
    ],
)
def test_recommended(generation: GenerationDefaults, expected: SamplingParams) -> None:
    assert recommended_params(generation, OURS, max_tokens=9) == expected
