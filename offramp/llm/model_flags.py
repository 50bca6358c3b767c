"""The options of a served model as they are written: in flags, in files, in profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from offramp.errors import InvalidRequestError
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.little_settings import LittleSettings
from offramp.llm.serving import Serving
from offramp.llm.starting import ModelStart
from offramp.params import refused, shown

MULTIPLES = {"": 1, "k": 1000, "m": 1000**2, "K": 1 << 10, "M": 1 << 20}
WHEN = ("start", "demand")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """One model's options as they were written. Impossible ones raise InvalidRequestError, at the latest in `start`."""

    load: str = "start"
    max_model_len: str | int | None = None
    max_num_seqs: str | int = "16"
    max_num_batched_tokens: str | int = "512"
    mode: str = "lossless"
    exits: str | None = None
    risk: float | None = None
    exit_threshold: str | float | None = None
    exit_measure: str | None = None
    exit_predictor: str | None = None
    exit_decay: int | None = None
    exit_fill: str | None = None
    exit_batching: str | None = None
    draft: str | None = None
    max_draft: int | None = None
    draft_length: str = "goodput"
    draft_memory: str | int = "64MiB"
    draft_model: str | None = None
    drafter: str | None = None
    little_rollback: float | None = None
    little_fallback: float | None = None
    max_little: int | None = None
    little_calibration: str | None = None
    verifier: str = "exact"
    weights: str = "auto"
    kv: str = "f16"
    kv_memory: str | int | None = None
    threads: int | None = None
    tool_call_parser: str = "auto"

    def __post_init__(self) -> None:
        if self.load not in WHEN:
            raise refused("load", self.load, "start or demand")

    def start(self, model: str) -> ModelStart:
        """With what this model starts."""
        exits = ExitSettings(
            pack=self.exits,
            risk=self.risk,
            threshold=self.exit_threshold,
            measure=self.exit_measure,
            predictor=self.exit_predictor,
            decay=self.exit_decay,
            fill=self.exit_fill,
            batching=self.exit_batching,
        )
        little = LittleSettings(
            rollback=self.little_rollback,
            fallback=self.little_fallback,
            max_run=self.max_little,
            calibration=self.little_calibration,
        )
        serving = Serving(
            mode=self.mode,
            draft=self.draft,
            draft_length=self.draft_length,
            max_draft=self.max_draft,
            draft_memory=self.draft_memory,
            draft_model=self.draft_model,
            drafter=self.drafter,
            verifier=self.verifier,
            exits=exits,
            little=little,
            max_num_seqs=whole_number("max_num_seqs", self.max_num_seqs),
            max_num_batched_tokens=whole_number("max_num_batched_tokens", self.max_num_batched_tokens),
            tool_call_parser=self.tool_call_parser,
        )
        context = None if self.max_model_len is None else whole_number("max_model_len", self.max_model_len)
        return ModelStart(
            model=model,
            serving=serving,
            weights=self.weights,
            kv=self.kv,
            kv_memory=self.kv_memory,
            threads=self.threads,
            max_context=context,
        )

    def replaced(self, options: Mapping[str, object], *, beside: str = "") -> ModelFlags:
        """With these in the place of its own. Raises InvalidRequestError for what is no option, or of another kind.

        `beside` names, for the hint, what else the caller's file may say.
        """
        known = {field.name: field.type for field in fields(ModelFlags)}
        for name, value in options.items():
            if name not in known:
                hint = f"options of a model are {beside}{', '.join(known)}"
                raise InvalidRequestError(f"there is no option {shown(name)}", hint=hint)
            _check_kind(name, value, known[name])
        return replace(self, **options)  # type: ignore[arg-type]


def whole_number(name: str, text: str | int) -> int:
    """An integer as vLLM's users write it: 4096, 4k (4000) or 4K (4096)."""
    match = re.fullmatch(r"(\d{1,18})([kmKM]?)", str(text), re.ASCII)
    if match is None:
        raise refused(name, text, "an integer, also as 4k (4000) or 4K (4096)")
    return int(match[1]) * MULTIPLES[match[2]]


def _check_kind(name: str, value: object, kinds: object) -> None:
    """Refuse what is of another kind than the field; `kinds` is the field's annotation, as text."""
    kind = {bool: "bool", int: "int", float: "float", str: "str", type(None): "None"}.get(type(value))
    allowed = str(kinds).split(" | ")
    if kind not in allowed and not (kind == "int" and "float" in allowed):
        wanted = {"str": "a text", "int": "an integer", "float": "a number", "None": "null"}
        raise refused(name, value, " or ".join(wanted[each] for each in allowed))
