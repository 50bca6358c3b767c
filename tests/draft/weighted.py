"""Drafters with weights for tests: a pack's heads with the layers before them, and small models cut from large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from offramp.core import Drafter
from offramp.draft import MAX_NODES
from offramp.draft.eagle import EagleDrafter
from offramp.draft.early_exit import EarlyExitDrafter
from offramp.draft.model import ModelDrafter
from offramp.draft.own_model import OwnModel
from offramp.draft.plans import DraftPlans, FixedPlans
from offramp.engine.draft_rows import DraftRows
from offramp.engine.taps import Taps
from offramp.exits.pack import load_heads
from offramp.llm.drafter_pack import native_side
from offramp.model.executor import HeadId, LayerExecutor
from offramp.model.quantize import dequantize
from offramp.model.tensors import F32Matrix, Matrix, all_roles
from offramp.native import NativeExecutor, build_executor
from offramp.native.sampling import sample_rows
from offramp.testing.packs import random_pack
from offramp.testing.side import random_drafter
from offramp.testing.toy import DictSource


class LayeredCosts:
    """`CostModel` in which a pass through all layers takes 1 for one row, `row` more for each further, heads `head`."""

    def __init__(self, num_layers: int, *, row: float = 0.02, head: float = 0.05) -> None:
        self._num_layers, self._row, self._head = num_layers, row, head
        self.num_told = 0

    def seconds(self, num_rows: int, num_layers: int, context: int, *, num_head_rows: int | None = None) -> float:
        head_rows = num_rows if num_head_rows is None else num_head_rows
        heads = self._head * (1.0 + self._row * head_rows) if head_rows else 0.0
        return (1.0 + self._row * (num_rows - 1)) * num_layers / self._num_layers + heads

    def observe(
        self, num_rows: int, num_layers: int, context: int, seconds: float, *, num_head_rows: int | None = None
    ) -> None:
        self.num_told += 1


def heads_of(
    executor: LayerExecutor, layers: tuple[int, ...], kind: str = "shared", num_ids: int | None = None
) -> Mapping[int, HeadId]:
    """A random pack's heads; reduced ones know the first `num_ids` tokens but every fifth."""
    ids = None
    if num_ids is not None:
        ids = np.array([token for token in range(num_ids) if token % 5 != 4], dtype=np.int32)
    pack = random_pack(executor.config, layers=layers, kind=kind, vocab_ids=ids)  # type: ignore[arg-type]
    return load_heads(executor, pack)


def early_maker(
    executor: LayerExecutor,
    heads: Mapping[int, HeadId],
    draft_rows: DraftRows,
    plans: DraftPlans | None = None,
) -> Callable[[], Drafter]:
    def make() -> Drafter:
        how = plans or FixedPlans(tuple(heads), MAX_NODES)
        return EarlyExitDrafter(heads, draft_rows, how, sample_rows, MAX_NODES)

    return make


def model_maker(
    target: LayerExecutor,
    draft: LayerExecutor,
    plans: DraftPlans | None = None,
    max_context: int = 1 << 20,
    num_shared: int | None = None,
) -> Callable[[], ModelDrafter]:
    """`num_shared`: all that both have rows for, unless the tokenizer has fewer."""

    def make() -> ModelDrafter:
        vocab_size = target.config.vocab_size
        model = OwnModel(
            draft,
            max_context=max_context,
            vocab_size=vocab_size,
            num_shared=min(vocab_size, draft.config.vocab_size) if num_shared is None else num_shared,
        )
        how = plans or FixedPlans((), MAX_NODES)
        return ModelDrafter(model, plans=how, sample_rows=sample_rows, max_len=MAX_NODES)

    return make


def eagle_maker(
    target: LayerExecutor,
    taps: Taps,
    plans: DraftPlans | None = None,
    depths: tuple[int, ...] = (1, 2),
    known: Iterable[int] | None = None,
) -> Callable[[], EagleDrafter]:
    """A random side layer; `known` are the tokens that it drafts (None: all)."""
    ids = None if known is None else np.array(list(known), dtype=np.int32)

    def make() -> EagleDrafter:
        assert isinstance(target, NativeExecutor)
        model = native_side(target, random_drafter(target.config, taps=depths, vocab_ids=ids), target.num_pages)
        how = plans or FixedPlans((), MAX_NODES)
        return EagleDrafter(model, taps, plans=how, sample_rows=sample_rows, max_len=MAX_NODES)

    return make


def cut_model(
    source: DictSource, num_layers: int, *, more_ids: int = 0, num_pages: int = 16, loud: float = 9.0
) -> LayerExecutor:
    """The first layers of a model as a model of its own, with `more_ids` padding ids: the louder, the likelier."""
    config = replace(source.config, num_layers=num_layers, vocab_size=source.config.vocab_size + more_ids)
    matrices: dict[str, Matrix] = {role: source.matrices[role] for role in all_roles(config) if role in source.matrices}
    for role in ("embedding", "lm_head"):
        if more_ids and role in matrices:
            values = dequantize(matrices[role])
            padding = loud * np.random.default_rng(1).standard_normal((more_ids, values.shape[1])).astype(np.float32)
            matrices[role] = F32Matrix(np.concatenate([values, padding]))
    return build_executor(DictSource(config, matrices, source.vectors), kv="f16", num_pages=num_pages, threads=1)
