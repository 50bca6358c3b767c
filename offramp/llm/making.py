"""A loaded model and its settings become an engine, and what callers ask becomes a request."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from offramp.core import FULL_DEPTH, PAGE_SIZE, DraftParams, ExitParams, Grammar, Request, SamplingParams
from offramp.draft import MAX_NODES, OFF, make_drafter
from offramp.draft.choice import DrafterChoice
from offramp.draft.length import LENGTHS, LengthSettings
from offramp.engine.cost import MeasuredCosts
from offramp.engine.engine import Engine
from offramp.engine.measure import LEAST_PAGES
from offramp.exits.policy import ExitPolicy
from offramp.grammar import Grammars
from offramp.llm.costs import COSTS, fill_costs
from offramp.llm.drafters import make_drafters
from offramp.llm.little import make_little
from offramp.llm.loading import LoadedModel
from offramp.llm.promises import Promises
from offramp.llm.serving import LOSSLESS, Serving
from offramp.llm.text import ChoiceText
from offramp.model.model_cache import default_cache
from offramp.native.sampling import sample_rows

log = logging.getLogger("offramp")

FRESH_SEED_BITS = 53
"""Seeds that we draw survive JSON, whose numbers are doubles."""


def make_engine(
    loaded: LoadedModel,
    serving: Serving,
    costs: MeasuredCosts,
    *,
    prefix_cache: bool = True,
    policies: Mapping[str, ExitPolicy] | None = None,
    waiting: Callable[[], int] | None = None,
) -> Engine:
    """An engine whose requests each name their drafter. Drafts need `ready_costs` first.

    Exit policies are those of the settings unless others are given; `waiting` tells how many requests wait, those
    before the engine included.
    """
    promises = Promises(loaded, serving)
    if policies is None:
        policies = promises.policies(waiting or (lambda: engine.statistics.num_waiting))
    made = make_drafters(loaded, serving, costs)
    little = promises.little_policies()
    assert not little or made.own is not None, "policies of a little model that is not there"
    lengths = LengthSettings(costs=costs, num_layers=loaded.config.num_layers, max_draft=serving.max_draft)
    engine = Engine(
        loaded.executor,
        max_context=loaded.max_context,
        max_num_seqs=serving.max_num_seqs,
        max_num_batched_tokens=serving.max_num_batched_tokens,
        drafter=DrafterChoice(lambda name: make_drafter(name, made.drafters), MAX_NODES),
        lengths=LENGTHS[serving.draft_length](lengths),
        exit_policies=policies,
        exit_batching=promises.batching,
        sample_rows=sample_rows,
        prefix_cache=prefix_cache,
        costs=costs,
        draft_rows=made.draft_rows,
        taps=made.taps,
        little=make_little(made.own, little) if little and made.own is not None else None,
    )
    return engine


def fit_to_memory(loaded: LoadedModel, serving: Serving) -> Serving:
    """As asked; where no draft was asked for and K/V memory is too small to measure costs in, without drafts."""
    settled = serving.draft is not None or serving.default_draft_in(LOSSLESS) == OFF
    if settled or loaded.executor.num_pages >= LEAST_PAGES:
        return serving
    log.warning("K/V memory holds fewer than %d tokens: drafts are off", LEAST_PAGES * PAGE_SIZE)
    return replace(serving, draft=OFF)


def ready_costs(costs: MeasuredCosts, loaded: LoadedModel, engine: Engine) -> None:
    """See that there are costs to choose draft lengths by: kept ones, or measured now, between steps (about 2 s)."""
    if costs.table is None:
        fill_costs(costs, loaded, engine, default_cache() / COSTS)


def make_grammars(loaded: LoadedModel) -> Grammars:
    """What compiles the grammars of a model's requests."""
    return Grammars(loaded.tokenizer, loaded.config.vocab_size, loaded.eos_token_ids)


def make_request(
    loaded: LoadedModel,
    request_id: str,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    drafting: DraftParams,
    *,
    exits: ExitParams = FULL_DEPTH,
    big_little: str | None = None,
    cache_salt: str = "",
    grammar: Grammar | None = None,
    shown: Collection[int] = (),
) -> Request:
    """A request to the engine; no seed means a fresh one, stop strings are watched through the tokenizer.

    `grammar` is what `params` or the request's tools ask for, compiled before, since that takes time; `shown` are
    special tokens whose text counts.
    """
    assert grammar is not None or params.structured_outputs is None, "the grammar of the parameters is missing"
    tokenizer = loaded.tokenizer
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        params=params,
        eos_token_ids=loaded.eos_token_ids,
        seed=secrets.randbits(FRESH_SEED_BITS) if params.seed is None else params.seed,
        text_stop=lambda choice: (
            ChoiceText(tokenizer, params.stop, params.min_tokens, prompt=prompt_token_ids, shown=shown).watch
        ),
        grammar=grammar,
        cache_salt=cache_salt,
        drafting=drafting,
        exits=exits,
        big_little=big_little,
    )
