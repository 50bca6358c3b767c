"""The little model writes under a policy: an engine of its own over the loaded pair, timed as contestants are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from benchmarks.speculation.contestant import Sample, run_together
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.core import DraftParams, SamplingParams
from offramp.draft import OFF
from offramp.engine.cost import MeasuredCosts
from offramp.engine.cost_table import CostTable
from offramp.llm.little_settings import LittleSettings
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_engine, make_request
from offramp.llm.serving import UNCHECKED, Serving


@dataclass(frozen=True, slots=True)
class Written:
    """One answer, and how much of it the little model wrote."""

    sample: Sample
    num_little: int
    num_differing: int  # of those: plain decoding would not have drawn them


class Writer:
    """Answers one prompt at a time."""

    def __init__(self, loaded: LoadedModel, table: CostTable, policy: BigLittlePolicy) -> None:
        assert loaded.draft is not None, "a pair is loaded"
        little = LittleSettings(rollback=policy.rollback, fallback=policy.fallback, max_run=policy.max_run)
        serving = Serving(mode=UNCHECKED, draft_model=loaded.draft.name, little=little, max_num_seqs=1)
        self._loaded = loaded
        self._engine = make_engine(loaded, serving, MeasuredCosts(table), prefix_cache=False)
        self._numbers = count()

    def run(self, token_ids: Sequence[int], new_tokens: int) -> Written:
        """Greedy, to its end token or length."""
        statistics = self._engine.statistics
        before = statistics.num_little_tokens, statistics.num_differing_tokens
        request = make_request(
            self._loaded,
            str(next(self._numbers)),
            token_ids,
            SamplingParams(temperature=0, max_tokens=new_tokens, seed=0),
            DraftParams(drafter=OFF),
            big_little=UNCHECKED,
        )
        sample = run_together(self._engine, [request])
        return Written(sample, statistics.num_little_tokens - before[0], statistics.num_differing_tokens - before[1])
