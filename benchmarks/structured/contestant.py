"""A way of answering at work: under a grammar or not, with drafts or not. All use one loaded model, in turns.

They write the same K/V pages. That is sound because each runs its requests to the end before another one begins, and
none keeps a prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from benchmarks.speculation.contestant import STREAMS, Sample, run_together
from offramp.core import DraftParams, Grammar, Request, SamplingParams
from offramp.draft import AUTO, OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable
from offramp.engine.engine import Engine
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_engine
from offramp.llm.serving import Serving
from offramp.native.sampling import sample_rows

FORCED = "forced"
"""Drafts of forced tokens alone."""
SIDES = (OFF, FORCED, AUTO)


class Contestant:
    """Greedy. Without a grammar end tokens are ignored, so that every answer is as long as it may be."""

    def __init__(self, loaded: LoadedModel, table: CostTable | None, draft: str, grammar: Grammar | None) -> None:
        """`table` is what `auto` chooses its lengths by."""
        assert draft in SIDES, draft
        self._loaded = loaded
        self._draft = draft
        self._grammar = grammar
        self._engine = _engine(loaded, table) if draft == AUTO else _engine_without_drafter(loaded)
        self._numbers = count()

    def run(self, prompts: Sequence[list[int]], limits: Sequence[int]) -> Sample:
        """All at once, each to the end of its grammar or its limit."""
        return run_together(self._engine, [self._request(*each) for each in zip(prompts, limits, strict=True)])

    def _request(self, prompt: list[int], limit: int) -> Request:
        return Request(
            request_id=str(next(self._numbers)),
            prompt_token_ids=prompt,
            params=SamplingParams(temperature=0, max_tokens=limit, ignore_eos=self._grammar is None),
            eos_token_ids=self._loaded.eos_token_ids,
            seed=0,
            grammar=self._grammar,
            drafting=DraftParams(drafter=None if self._draft == FORCED else self._draft),
        )


def _engine_without_drafter(loaded: LoadedModel) -> Engine:
    """It drafts what grammars force, unless a request has drafts off."""
    return Engine(
        loaded.executor,
        max_context=loaded.max_context,
        max_num_seqs=STREAMS,
        sample_rows=sample_rows,
        prefix_cache=False,
    )


def _engine(loaded: LoadedModel, table: CostTable | None) -> Engine:
    serving = Serving(draft=OFF, max_num_seqs=STREAMS)
    return make_engine(loaded, serving, MeasuredCosts(table), prefix_cache=False)
