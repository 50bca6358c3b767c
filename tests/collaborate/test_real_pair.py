"""The default model in eight bits, with itself in four bits to write for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import LLM, RequestOptions, SamplingParams
from offramp.llm.draft_model import join_draft_model
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import load_model
from offramp.llm.serving import Serving
from tests.speculation.prompts import PROMPTS

TEXTS = [PROMPTS[name] for name in ("summary", "story")]
PARAMS = SamplingParams(temperature=0.0, max_tokens=24)
LOSSLESS, WRITTEN = RequestOptions(mode="lossless", draft="off"), RequestOptions(mode="unchecked")


@pytest.mark.real_model
def test_it_writes_most_of_an_answer_and_loses_nothing_at_its_limit(default_model_path: Path) -> None:
    big = load_model(default_model_path, weights="q8", max_context=1024, max_num_seqs=4)
    loaded = join_draft_model(big, load_model(default_model_path, weights="q4", max_context=1024, max_num_seqs=4))
    for rollback in (0.0, 3.0):
        settings = LittleSettings(rollback=rollback, fallback=0.3)
        llm = LLM.from_loaded(loaded, Serving(draft_model="little", little=settings))
        plain, written = (llm.generate(TEXTS, PARAMS, options) for options in (LOSSLESS, WRITTEN))
        differing = [output.report.num_differing_tokens for output in written]
        assert all(output.report.num_little_tokens > 8 for output in written), rollback
        same = [
            one.outputs[0].token_ids == other.outputs[0].token_ids for one, other in zip(plain, written, strict=True)
        ]
        assert same == [count == 0 for count in differing]
        assert rollback or same == [True, True]
