"""What a model is, and what would run of it here when nothing else is asked for: as JSON values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from offramp.core import PAGE_SIZE
from offramp.errors import ResourceError
from offramp.exits.certificate import CertifiedEntry, SamplingSettings
from offramp.exits.pack import bind
from offramp.exits.pack_file import read_pack
from offramp.llm.exits import read_entries
from offramp.llm.loading import read_template, read_tokenizer
from offramp.llm.memory import available_memory, plan_kv
from offramp.llm.serving import Serving
from offramp.model.config import ModelConfig
from offramp.model.tensors import all_roles, is_vector, role_shape
from offramp.model.tokenizer import Tokenizer
from offramp.native import kernel_paths
from offramp.native.converted import ConvertedModel, OpenedModel
from offramp.native.converting import converted_bytes
from offramp.native.kv import KV_BYTES, KvType, page_bytes
from offramp.native.threads import default_threads

KV: KvType = "f16"  # as `load_model` has it


def describe(model: OpenedModel, pack: str | Path | None = None) -> dict[str, object]:
    """Everything worth knowing about a model, and about an exit pack of it. Raises OfframpError for another's pack."""
    config, tokenizer = model.config, read_tokenizer(model)
    made_from = {"source": model.source, "source_hash": model.source_hash} if isinstance(model, ConvertedModel) else {}
    return {
        "path": str(model.path),
        "kind": "converted" if isinstance(model, ConvertedModel) else model.kind,
        **made_from,
        "family": config.family,
        "num_parameters": sum(math.prod(role_shape(config, role)) for role in all_roles(config)),
        "num_bytes": sum(file.stat().st_size for file in _files(model)),
        "max_context": config.max_context,
        "config": asdict(config),
        "tensors": _tensors(model),
        "kv_bytes_per_token": {kv: page_bytes(config, kv) // PAGE_SIZE for kv in KV_BYTES},
        "tokenizer": _tokenizer(model, tokenizer),
        "chat_template": read_template(model, tokenizer).available,
        "generation": asdict(model.generation),
        "packs": [] if pack is None else [_pack(model, pack)],
        "runs": _runs(model),
    }


def _files(model: OpenedModel) -> Iterable[Path]:
    if isinstance(model, ConvertedModel):
        return (file for file in model.path.rglob("*") if file.is_file())
    return model.files


def _tensors(model: OpenedModel) -> dict[str, dict[str, int]]:
    """How many tensors and bytes there are of each type."""
    counts, sizes = Counter[str](), Counter[str]()
    if isinstance(model, ConvertedModel):
        weights = model.weights(model.config)
        held = [(weights.matrix_formats.get(role, "f32"), entry.num_bytes) for role, entry in weights.entries.items()]
    else:
        held = [(tensor.dtype, tensor.data.nbytes) for tensor in model.tensors.values()]
    for dtype, num_bytes in held:
        counts[dtype] += 1
        sizes[dtype] += num_bytes
    return {dtype: {"count": counts[dtype], "num_bytes": sizes[dtype]} for dtype in sorted(counts)}


def _tokenizer(model: OpenedModel, tokenizer: Tokenizer) -> dict[str, object]:
    source = model.tokenizer_source
    kind = "tokenizer.json" if isinstance(source, Path) else str(source["tokenizer.ggml.model"])
    return {
        "kind": kind,
        "pre": None if isinstance(source, Path) else source.get("tokenizer.ggml.pre"),
        "vocab_size": tokenizer.vocab_size,
        "bos": _token(tokenizer.bos_token_id, tokenizer.special_texts),
        "adds_bos": tokenizer.adds_bos,
        "ends": [_token(token, tokenizer.special_texts) for token in sorted(tokenizer.eos_token_ids)],
    }


def _pack(model: OpenedModel, place: str | Path) -> dict[str, object]:
    pack = read_pack(place)
    folder = pack.folder
    assert folder is not None, "a pack that was read from a folder"
    hashed = model.source_hash if isinstance(model, ConvertedModel) else model.source_hash()
    bind(pack, model_hash=hashed, config=model.config)
    config = pack.config
    return {
        "name": folder.resolve().name,
        "path": str(folder),
        "identity": pack.identity,
        "kind": config.kind,
        "layers": list(config.layers),
        "rank": config.rank,
        "vocabulary": config.vocabulary,
        "predictors": config.predictors,
        "num_bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "calibration": [_entry(entry) for entry in read_entries(pack)],
        "provenance": dict(config.provenance),
    }


def _entry(entry: CertifiedEntry) -> dict[str, object]:
    """What a certified policy keeps, and when."""
    measured, running = entry.measured, entry.circumstances
    default, sampling = asdict(SamplingSettings(temperature=-1.0)), asdict(entry.sampling)
    return {
        "risk": entry.risk,
        "delta": entry.delta,
        "loss": entry.loss,
        "num_prompts": measured.num_prompts,
        "mean_loss": measured.mean_loss,
        "depth": measured.depth,
        "gain": measured.gain,
        "max_tokens": entry.max_tokens,
        **{name: value for name, value in sampling.items() if value != default[name]},
        "fill": entry.policy.fill,
        **{name: getattr(running, name) for name in ("batching", "weights", "kv")},
    }


def _token(token_id: int | None, texts: Mapping[int, str]) -> dict[str, object] | None:
    return None if token_id is None else {"id": token_id, "text": texts.get(token_id)}


def _runs(model: OpenedModel) -> dict[str, object]:
    """What `LLM` would run without options; matrices by format."""
    serving = Serving()
    if isinstance(model, ConvertedModel):
        weights = model.weights(model.config)
        formats, num_bytes = weights.formats, weights.path.stat().st_size
    else:
        stored = model.weights(tell=False)
        formats = dict(
            sorted(Counter(stored.format_of(role) for role in stored.roles() if not is_vector(role)).items())
        )
        num_bytes = converted_bytes(stored)
    return {
        "weights": formats,
        "weights_bytes": num_bytes,
        "kv": KV,
        **_room(model.config, serving.max_num_seqs),
        "kernels": kernel_paths()[-1],
        "threads": default_threads(),
        "mode": serving.mode,
        "draft": serving.default_draft,
    }


def _room(config: ModelConfig, max_num_seqs: int) -> dict[str, object]:
    """K/V memory and the context that it holds; neither, where memory is too short to run."""
    try:
        plan = plan_kv(
            config, kv=KV, kv_memory=None, max_context=None, max_num_seqs=max_num_seqs, available=available_memory()
        )
    except ResourceError:
        return {"kv_bytes": None, "context": None}
    return {"kv_bytes": plan.num_bytes, "context": plan.max_context}
