"""The drafters of one engine: those that need weights get what was loaded with the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offramp.core import CostModel, Request
from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT, MAX_NODES, OFF, Drafters
from offramp.draft.own_model import OwnModel
from offramp.draft.pack import DrafterPack
from offramp.draft.paid import PaidDrafter
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.draft.predictions import Predictions
from offramp.engine.draft_rows import DraftRows
from offramp.engine.taps import Taps
from offramp.llm.exits import LoadedExits
from offramp.llm.loading import LoadedModel
from offramp.llm.serving import Serving
from offramp.native.sampling import sample_rows

GOODPUT = "goodput"
"""The lengths under which drafters with weights ask what they cost."""
LOOKING = 0.03
"""Share of a step that collecting hidden states takes: what a side layer must gain to begin with."""


@dataclass(frozen=True, slots=True)
class MadeDrafters:
    """All drafters by name, and what the engine must be given for those that need layers or hidden states."""

    drafters: Drafters
    draft_rows: DraftRows
    taps: Taps | None
    own: OwnModel | None  # the draft model, which may be asked to write, too


def make_drafters(loaded: LoadedModel, serving: Serving, costs: CostModel) -> MadeDrafters:
    """The drafters of one engine."""
    draft_rows = DraftRows(loaded.executor)
    pack = loaded.drafter
    taps = None if pack is None else Taps(pack.config.taps, _looks_at_states)
    makers: dict[str, Callable[[], PaidDrafter]] = {}
    exits, own = loaded.exits, None if loaded.draft is None else own_model(loaded, loaded.draft)
    assert serving.draft_model is None or own is not None, "load the draft model first"
    assert serving.drafter in (None, OFF) or pack is not None, "load the drafter pack first"
    if exits is not None:
        makers[EARLY_EXIT] = lambda: _early_exit(loaded, exits, serving, costs, draft_rows)
    if own is not None:
        makers[DRAFT_MODEL] = lambda: _model(loaded, own, serving, costs)
    if pack is not None and taps is not None:
        makers[EAGLE] = lambda: _eagle(loaded, pack, taps, serving, costs)
    predictions = Predictions(costs, loaded.config.num_layers) if serving.draft_length == GOODPUT else None
    drafters = Drafters(store_bytes=serving.store_bytes(), makers=makers, predictions=predictions)
    return MadeDrafters(drafters, draft_rows, taps, own)


def _looks_at_states(request: Request) -> bool:
    names = (request.drafting.drafter or "").split(",")
    return not request.drafts_off and (EAGLE in names or AUTO in names)


def _early_exit(
    loaded: LoadedModel, exits: LoadedExits, serving: Serving, costs: CostModel, draft_rows: DraftRows
) -> PaidDrafter:
    from offramp.draft.early_exit import EarlyExitDrafter
    from offramp.draft.early_plans import PaidExits

    layers = exits.pack.config.layers
    plans: DraftPlans = FixedPlans(layers, _most(serving))
    if serving.draft_length == GOODPUT:
        plans = PaidExits(costs, loaded.config.num_layers, layers, _most(serving))
    return EarlyExitDrafter(exits.heads, draft_rows, plans, sample_rows, MAX_NODES)


def own_model(loaded: LoadedModel, draft: LoadedModel) -> OwnModel:
    """A draft model as all who use it in one engine share it."""
    return OwnModel(
        draft.executor,
        max_context=draft.max_context,
        vocab_size=loaded.config.vocab_size,
        num_shared=loaded.tokenizer.vocab_size,
    )


def _model(loaded: LoadedModel, own: OwnModel, serving: Serving, costs: CostModel) -> PaidDrafter:
    from offramp.draft.model import ModelDrafter
    from offramp.draft.model_plans import PaidLength

    plans: DraftPlans = FixedPlans((), _most(serving))
    if serving.draft_length == GOODPUT:
        plans = PaidLength(costs, loaded.config.num_layers, _most(serving))
    return ModelDrafter(own, plans=plans, sample_rows=sample_rows, max_len=MAX_NODES)


def _eagle(loaded: LoadedModel, pack: DrafterPack, taps: Taps, serving: Serving, costs: CostModel) -> PaidDrafter:
    from offramp.draft.eagle import EagleDrafter
    from offramp.draft.model_plans import PaidLength
    from offramp.llm.drafter_pack import side_model

    plans: DraftPlans = FixedPlans((), _most(serving))
    if serving.draft_length == GOODPUT:
        plans = PaidLength(costs, loaded.config.num_layers, _most(serving), least_gain=LOOKING)
    model = side_model(loaded, pack)
    return EagleDrafter(model, taps, plans=plans, sample_rows=sample_rows, max_len=MAX_NODES)


def _most(serving: Serving) -> int:
    """Tokens drafted for a sequence in one step."""
    return MAX_NODES if serving.max_draft is None else min(MAX_NODES, serving.max_draft)
