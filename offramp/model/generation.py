"""What a checkpoint recommends for generation: end-of-text ids, BOS and sampling settings."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.errors import CorruptModelError
from offramp.model.metadata import Fields
from offramp.params import MAX_SCALE

SMALLEST = 1e-6
"""Stands for "above 0": the least top-p, and the least repetition penalty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """Settings the checkpoint names; None where it names none. Any id in `eos_token_ids` ends a text."""

    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


def generation_from_hf(config: Fields, generation: Fields | None, vocab_size: int) -> GenerationDefaults:
    """From `config.json` and, if present, `generation_config.json`: the union of their EOS ids, the latter first."""
    sources = [config] if generation is None else [generation, config]
    eos = tuple(dict.fromkeys(i for source in sources for i in source.token_ids("eos_token_id")))
    bos = next((source.integer("bos_token_id", low=0) for source in sources if source.has("bos_token_id")), None)
    _check_ids(config.where, vocab_size, eos, bos)
    if generation is None:
        return GenerationDefaults(eos_token_ids=eos, bos_token_id=bos)
    return GenerationDefaults(
        eos_token_ids=eos,
        bos_token_id=bos,
        do_sample=generation.flag("do_sample", False) if generation.has("do_sample") else None,
        temperature=_number(generation, "temperature", 0.0),
        top_k=_integer(generation, "top_k", -1),
        top_p=_number(generation, "top_p", SMALLEST, 1.0),
        min_p=_number(generation, "min_p", 0.0, 1.0),
        repetition_penalty=_number(generation, "repetition_penalty", SMALLEST),
    )


def generation_from_gguf(metadata: Fields, vocab_size: int) -> GenerationDefaults:
    """From the tokenizer's ids (end of text, of turn, of message) and the `general.sampling.*` keys."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    eos = tuple(dict.fromkeys(i for name in names for i in metadata.token_ids(f"tokenizer.ggml.{name}")))
    bos = _integer(metadata, "tokenizer.ggml.bos_token_id", 0)
    _check_ids(metadata.where, vocab_size, eos, bos)
    return GenerationDefaults(
        eos_token_ids=eos,
        bos_token_id=bos,
        temperature=_number(metadata, "general.sampling.temp", 0.0),
        top_k=_integer(metadata, "general.sampling.top_k", -1),
        top_p=_number(metadata, "general.sampling.top_p", SMALLEST, 1.0),
        min_p=_number(metadata, "general.sampling.min_p", 0.0, 1.0),
        repetition_penalty=_number(metadata, "general.sampling.penalty_repeat", SMALLEST),
    )


def _number(fields: Fields, name: str, low: float, high: float = MAX_SCALE) -> float | None:
    return fields.number(name, low=low, high=high) if fields.has(name) else None


def _integer(fields: Fields, name: str, low: int) -> int | None:
    return fields.integer(name, low=low) if fields.has(name) else None


def _check_ids(where: str, vocab_size: int, eos: tuple[int, ...], bos: int | None) -> None:
    for token in (*eos, *(() if bos is None else (bos,))):
        if token >= vocab_size:
            raise CorruptModelError(
                f"{where}: special token id {token} is outside the vocabulary of {vocab_size}",
                hint="the config and the weights belong to different models",
            )
