"""The drafters of one engine: those that need weights get what was loaded with the model."""

from __future__ import annotations

from collections.abc import Callable

from offramp.core import CostModel, Drafter
from offramp.draft import DRAFT_MODEL, EARLY_EXIT, MAX_NODES, Drafters
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.engine.draft_rows import DraftRows
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.native.sampling import sample_rows


def make_drafters(loaded: LoadedModel, serving: Serving, costs: CostModel) -> tuple[Drafters, DraftRows]:
    """All drafters by name, and the rows that the engine must be given for those that need layers."""
    draft_rows = DraftRows(loaded.executor)
    makers: dict[str, Callable[[], Drafter]] = {}
    exits, draft = loaded.exits, loaded.draft
    assert serving.draft_model is None or draft is not None, "load the draft model first"
    if exits is not None:
        makers[EARLY_EXIT] = lambda: _early_exit(loaded, exits, serving, costs, draft_rows)
    if draft is not None:
        makers[DRAFT_MODEL] = lambda: _model(loaded, draft, serving, costs)
    return Drafters(store_bytes=serving.store_bytes(), makers=makers), draft_rows


def _early_exit(
    loaded: LoadedModel, exits: LoadedExits, serving: Serving, costs: CostModel, draft_rows: DraftRows
) -> Drafter:
    from offramp.draft.early_exit import EarlyExitDrafter
    from offramp.draft.early_plans import PaidExits

    layers = exits.pack.config.layers
    plans: DraftPlans = FixedPlans(layers, _most(serving))
    if serving.draft_length == "goodput":
        plans = PaidExits(costs, loaded.config.num_layers, layers, _most(serving))
    return EarlyExitDrafter(exits.heads, draft_rows, plans, sample_rows, MAX_NODES)


def _model(loaded: LoadedModel, draft: LoadedModel, serving: Serving, costs: CostModel) -> Drafter:
    from offramp.draft.model import ModelDrafter
    from offramp.draft.model_plans import PaidLength

    plans: DraftPlans = FixedPlans((), _most(serving))
    if serving.draft_length == "goodput":
        plans = PaidLength(costs, loaded.config.num_layers, _most(serving))
    return ModelDrafter(
        draft.executor,
        max_context=draft.max_context,
        vocab_size=loaded.config.vocab_size,
        num_shared=loaded.tokenizer.vocab_size,
        plans=plans,
        sample_rows=sample_rows,
        max_len=MAX_NODES,
    )


def _most(serving: Serving) -> int:
    """Tokens drafted for a sequence in one step."""
    return MAX_NODES if serving.max_draft is None else min(MAX_NODES, serving.max_draft)
