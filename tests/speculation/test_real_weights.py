"""The default model says the same with its own first layers ahead, or with itself in four bits as the draft model."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import LLM, RequestOptions, RequestOutput, SamplingParams
from offramp.llm.draft_model import join_draft_model
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.loading import load_model, with_exits
from offramp.llm.serving import Serving
from tests.speculation.prompts import PROMPTS

PACK = "smollm2-135m"
"""It comes with the package."""
TEXTS = [PROMPTS[name] for name in ("summary", "code", "story")]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=24),
    SamplingParams(temperature=0.7, top_p=0.95, seed=3, max_tokens=24),
]


def said(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.real_model
def test_answers_are_the_same_greedy_and_sampled(default_model_path: Path) -> None:
    target = load_model(default_model_path, weights="q8", max_context=1024, max_num_seqs=4)
    small = load_model(default_model_path, weights="q4", max_context=1024, max_num_seqs=4)
    serving = Serving(draft_length="fixed", max_draft=3, draft_model="small", exits=ExitSettings(pack=PACK))
    llm = LLM.from_loaded(join_draft_model(with_exits(target, PACK), small), serving)
    for params in PARAMS:
        plain = said(llm.generate(TEXTS, params, RequestOptions(draft="off")))
        for drafter, least in [("early_exit", 5), ("model", 25)]:
            before = llm.statistics.num_accepted_tokens
            assert said(llm.generate(TEXTS, params, RequestOptions(draft=drafter))) == plain
            assert llm.statistics.num_accepted_tokens - before > least, drafter
