"""A model made ready to run: files found, weights prepared, K/V memory planned, text and chat at hand."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from offramp.draft.pack import DrafterPack
from offramp.errors import CorruptModelError, ResourceError
from offramp.llm.exits import LoadedExits, load_exits
from offramp.llm.memory import KvPlan, available_memory, plan_kv
from offramp.llm.options import check_loading
from offramp.model.config import ModelConfig
from offramp.model.executor import LayerExecutor
from offramp.model.generation import GenerationDefaults
from offramp.model.model_cache import default_cache
from offramp.model.sources import resolve
from offramp.model.template import ChatTemplate
from offramp.model.tensors import WeightFormat
from offramp.model.tokenizer import Tokenizer
from offramp.native import NativeExecutor, executor_over
from offramp.native.converted import ConvertedModel, OpenedModel, open_model
from offramp.native.converting import converted_bytes
from offramp.native.kv import KvType, kv_type
from offramp.native.packed import PackedWeights
from offramp.native.prepared import prepared_weights
from offramp.native.prepared_file import PreparedWeights
from offramp.native.prepared_folder import PREPARED

log = logging.getLogger("offramp")

DEFAULT_WEIGHTS, DEFAULT_KV = "auto", "f16"
TWIN = "f32"
"""Everything of the executor in numpy, which names no formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """Everything that answers requests, text included."""

    name: str
    executor: LayerExecutor
    tokenizer: Tokenizer
    template: ChatTemplate
    generation: GenerationDefaults
    max_context: int  # prompt and answer together
    source_hash: str  # of the checkpoint's tensors: the model's identity
    weights: WeightFormat = "auto"  # as asked for, here or where it was converted
    formats: Mapping[str, int] = field(default_factory=dict)  # matrices by the format they run in
    exits: LoadedExits | None = None
    draft: LoadedModel | None = None  # a small model of the same vocabulary, to draft
    drafter: DrafterPack | None = None  # weights of a drafter over its hidden states

    @property
    def config(self) -> ModelConfig:
        return self.executor.config

    @property
    def kv(self) -> str:
        """The K/V type."""
        return getattr(self.executor, "kv", TWIN)

    @property
    def formats_in_words(self) -> str:
        """How many matrices run in which format: "q4 210, q8 1"."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.formats.items())) or TWIN

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a text, whichever file names it."""
        return self.tokenizer.eos_token_ids | frozenset(self.generation.eos_token_ids)

    @property
    def bos_token_id(self) -> int | None:
        bos = self.tokenizer.bos_token_id
        return self.generation.bos_token_id if bos is None else bos


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model found, opened and checked, and how it shall be held; nothing of it is in memory yet."""

    name: str
    opened: OpenedModel
    weights: WeightFormat
    kv: KvType
    threads: int | None

    def weight_bytes(self) -> int:
        """What its weights take."""
        if isinstance(self.opened, ConvertedModel):
            return self.opened.weights_path.stat().st_size
        return converted_bytes(self.opened.weights(self.weights, tell=False))

    def plan(
        self,
        *,
        kv_memory: int | str | None,
        max_context: int | None,
        max_num_seqs: int,
        available: int,
        share: int | None = None,
        beside: int = 0,
    ) -> KvPlan:
        """The K/V memory that it shall have: `plan_kv` with its config. Tells of a context that is lowered."""
        plan = plan_kv(
            self.opened.config,
            kv=self.kv,
            kv_memory=kv_memory,
            max_context=max_context,
            max_num_seqs=max_num_seqs,
            available=available,
            share=share,
            beside=beside,
        )
        if max_context is None:
            _tell_lowered_context(plan.max_context, self.opened.config.max_context)
        return plan

    def load(self, plan: KvPlan) -> LoadedModel:
        """The model in memory, its weights prepared first if need be."""
        opened = self.opened
        tokenizer = read_tokenizer(opened)
        template = read_template(opened, tokenizer)
        packed = _packed(opened, opened.config.for_context(plan.max_context), self.weights)
        packed.settle(available_memory() - plan.num_bytes)
        return LoadedModel(
            name=self.name,
            executor=_executor(packed, self.kv, self.threads, plan),
            tokenizer=tokenizer,
            template=template,
            generation=opened.generation,
            max_context=plan.max_context,
            source_hash=packed.source_hash,
            weights=opened.fmt if isinstance(opened, ConvertedModel) else self.weights,
            formats=packed.formats,
        )


def find_model(
    name: str | Path, *, weights: str = DEFAULT_WEIGHTS, kv: str = DEFAULT_KV, threads: int | None = None
) -> FoundModel:
    """Find, open and check a model; fetches it first if need be. Raises OfframpError."""
    opened, fmt = open_model(resolve(str(name))), _weight_format(weights)
    if isinstance(opened, ConvertedModel):
        opened.check_gives(fmt)
    return FoundModel(name=str(name), opened=opened, weights=fmt, kv=kv_type(kv), threads=threads)


def load_model(
    name: str | Path,
    *,
    weights: str = DEFAULT_WEIGHTS,
    kv: str = DEFAULT_KV,
    threads: int | None = None,
    max_context: int | None = None,
    max_num_seqs: int = 16,
    kv_memory: int | str | None = None,
) -> LoadedModel:
    """Find, check and prepare a model; fetches it first if need be. Raises OfframpError."""
    check_loading(
        name,
        weights=weights,
        kv=kv,
        threads=threads,
        max_context=max_context,
        max_num_seqs=max_num_seqs,
        kv_memory=kv_memory,
    )
    found = find_model(name, weights=weights, kv=kv, threads=threads)
    return found.load(
        found.plan(
            kv_memory=kv_memory, max_context=max_context, max_num_seqs=max_num_seqs, available=available_memory()
        )
    )


def with_exits(loaded: LoadedModel, folder: str | Path | None) -> LoadedModel:
    """The model with the exit pack of a folder or name, if one is asked for. Raises what `load_exits` raises."""
    if folder is None:
        return loaded
    return replace(loaded, exits=load_exits(folder, loaded.executor, loaded.source_hash))


def _tell_lowered_context(chosen: int, longest: int) -> None:
    if chosen < longest:
        log.warning("K/V memory holds %d tokens: the context is that, not the model's %d", chosen, longest)


def read_tokenizer(model: OpenedModel) -> Tokenizer:
    """The tokenizer that comes with a model; each of its tokens must have a row in the embedding."""
    source = model.tokenizer_source
    if isinstance(source, Path):
        tokenizer = Tokenizer.from_directory(source)
    else:
        tokenizer = Tokenizer.from_gguf(source, str(model.path))
    if tokenizer.vocab_size > model.config.vocab_size:
        raise CorruptModelError(
            f"{model.path}: {tokenizer.vocab_size} tokens, but {model.config.vocab_size} embedding rows",
            hint="the tokenizer and the weights belong to different models",
        )
    return tokenizer


def read_template(model: OpenedModel, tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template that comes with a model; it may have none (`available`)."""
    source = model.tokenizer_source
    if isinstance(source, Path):
        return ChatTemplate.from_directory(source, tokenizer)
    return ChatTemplate.from_gguf(source, tokenizer)


def _packed(model: OpenedModel, config: ModelConfig, fmt: WeightFormat) -> PreparedWeights:
    """The weights for the context of `config`; those of a checkpoint are prepared first if need be."""
    if isinstance(model, ConvertedModel):
        return model.weights(config)
    checkpoint = replace(model, config=config)

    def source_hash() -> str:  # asked for when weights are prepared, and only then
        checkpoint.tell_conversions()
        return checkpoint.source_hash()

    return prepared_weights(
        checkpoint.weights(fmt, tell=False),
        files=checkpoint.files,
        fmt=fmt,
        source_hash=source_hash,
        folder=default_cache() / PREPARED,
    )


def _executor(packed: PackedWeights, kv: str, threads: int | None, plan: KvPlan) -> NativeExecutor:
    try:
        return executor_over(packed, kv=kv, num_pages=plan.num_pages, threads=threads)
    except MemoryError as error:
        raise ResourceError(
            f"{plan.num_bytes} bytes of K/V memory can't be reserved", hint="lower kv_memory or max_context"
        ) from error


def _weight_format(name: str) -> WeightFormat:
    formats: tuple[WeightFormat, ...] = get_args(WeightFormat)
    return next(fmt for fmt in formats if fmt == name)
