"""One of a server's models before it runs: with what it starts, found, and what memory it will take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from offramp.core import PAGE_SIZE
from offramp.draft.pack import DrafterPack
from offramp.errors import InvalidRequestError, ResourceError
from offramp.exits.pack_file import read_pack
from offramp.llm.draft_model import join_draft_model
from offramp.llm.drafter_pack import join_drafter, planned_drafter, side_page_bytes, with_drafter
from offramp.llm.loading import FoundModel, LoadedModel, find_model, with_exits
from offramp.llm.memory import KvPlan, MemoryShare, available_memory, mib
from offramp.llm.options import check_loading
from offramp.llm.serving import Serving
from offramp.native.kv import page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart:
    """Which model, how it is held and how it serves. Impossible values raise InvalidRequestError."""

    model: str
    serving: Serving
    weights: str = "auto"
    kv: str = "f16"
    kv_memory: int | str | None = None
    threads: int | None = None
    max_context: int | None = None
    source_hash: str | None = None  # the only one that the model may have

    def __post_init__(self) -> None:
        check_loading(
            self.model,
            weights=self.weights,
            kv=self.kv,
            threads=self.threads,
            max_context=self.max_context,
            max_num_seqs=self.serving.max_num_seqs,
            kv_memory=self.kv_memory,
        )

    def check_hash(self, found: str) -> None:
        """Refuse another model than the one that is meant."""
        if self.source_hash not in (None, found):
            message = f"{self.model} is another model than the profile's: its hash is {found}, not {self.source_hash}"
            raise InvalidRequestError(message, hint="measure this one: `offramp tune MODEL -o FILE`", param="profile")

    def find(self, share: MemoryShare | None = None) -> FoundStart:
        """Find and check it, with what drafts, and plan its memory: within a share, or by what is free now.

        Fetches what is not here yet. Raises OfframpError.
        """
        target = find_model(self.model, weights=self.weights, kv=self.kv, threads=self.threads)
        name = self.serving.draft_model
        draft = None if name is None else find_model(name, threads=self.threads)
        exits = self.serving.exits.pack
        side = planned_drafter(self.serving.drafter, target.opened.config)
        weight_bytes = sum(found.weight_bytes() for found in (target, draft) if found is not None)
        weight_bytes += 0 if exits is None else _folder_bytes(read_pack(exits).folder)
        weight_bytes += 0 if side is None else _folder_bytes(side.folder)
        if share is not None:
            return self._planned_within(share, target, draft, side, weight_bytes)
        plan = self._planned(target)
        found = FoundStart(start=self, target=target, plan=plan, weight_bytes=weight_bytes, drafter=side)
        return found if draft is None else replace(found, draft=draft, draft_plan=self._planned_draft(draft))

    def _planned(self, found: FoundModel) -> KvPlan:
        """By what memory is free now."""
        return found.plan(
            kv_memory=self.kv_memory,
            max_context=self.max_context,
            max_num_seqs=self.serving.max_num_seqs,
            available=available_memory(),
        )

    def _planned_draft(self, draft: FoundModel) -> KvPlan:
        """The same, for a draft model."""
        num_seqs, available = self.serving.max_num_seqs, available_memory()
        return draft.plan(kv_memory=None, max_context=None, max_num_seqs=num_seqs, available=available)

    def _planned_within(
        self,
        share: MemoryShare,
        target: FoundModel,
        draft: FoundModel | None,
        side: DrafterPack | None,
        weight_bytes: int,
    ) -> FoundStart:
        own, available = share.left_by(weight_bytes)
        if available <= 0:
            message = f"the weights of {self.model} take {mib(weight_bytes)}, and all models may take "
            raise ResourceError(message + mib(share.num_bytes), hint="raise --memory")
        plan = target.plan(
            kv_memory=self.kv_memory,
            max_context=self.max_context,
            max_num_seqs=self.serving.max_num_seqs,
            available=available,
            share=own,
            beside=(0 if draft is None else page_bytes(draft.opened.config, draft.kv)) + _side_page_bytes(target, side),
        )
        found = FoundStart(start=self, target=target, plan=plan, weight_bytes=weight_bytes, drafter=side)
        return found if draft is None else replace(found, draft=draft, draft_plan=_beside(plan, draft))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """A model found, with its memory planned; nothing of it is in memory yet."""

    start: ModelStart
    target: FoundModel
    plan: KvPlan
    weight_bytes: int  # packs and draft model included
    draft: FoundModel | None = None
    draft_plan: KvPlan | None = None
    drafter: DrafterPack | None = None

    @property
    def num_bytes(self) -> int:
        """Weights and K/V."""
        draft = 0 if self.draft_plan is None else self.draft_plan.num_bytes
        side = self.plan.num_pages * _side_page_bytes(self.target, self.drafter)
        return self.weight_bytes + self.plan.num_bytes + draft + side

    def load(self) -> LoadedModel:
        """It in memory, with what drafts and its exit pack. Raises OfframpError."""
        loaded = self.target.load(self.plan)
        self.start.check_hash(loaded.source_hash)
        if self.draft is not None:
            assert self.draft_plan is not None, "a draft model without a plan"
            loaded = join_draft_model(loaded, self.draft.load(self.draft_plan))
        if self.start.serving.drafter is None:
            loaded = with_drafter(loaded, None)
        elif self.drafter is not None:
            loaded = join_drafter(loaded, self.drafter)
        return with_exits(loaded, self.start.serving.exits.pack)


def _beside(plan: KvPlan, draft: FoundModel) -> KvPlan:
    """As many pages for a draft model: it follows the same texts."""
    config = draft.opened.config
    return KvPlan(plan.num_pages, min(config.max_context, plan.num_pages * PAGE_SIZE), page_bytes(config, draft.kv))


def _side_page_bytes(target: FoundModel, pack: DrafterPack | None) -> int:
    """What a drafter pack's layer takes beside each page of its target."""
    return 0 if pack is None else side_page_bytes(target.opened.config, pack, target.kv)


def _folder_bytes(folder: Path | None) -> int:
    """What a pack's weights take, about."""
    return 0 if folder is None else sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
