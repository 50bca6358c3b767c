"""The nouns that every part of the engine shares, the rules that keep each of them well formed, and the protocols.

Nothing here decides, samples or touches a model.

A request asks for one or more sequences (choices); a sequence is behind by some tokens at some layers; a step packs
rows, runs them, judges drafts and commits tokens. Shapes: rows = rows of one executor call, seqs = sequences it
touches.
"""

from __future__ import annotations

from offramp.core.events import DraftOutcome, TokenEvent, TokenLogprobs
from offramp.core.grammar import Grammar, Matcher
from offramp.core.ids import PAGE_SIZE, IdBuffer, Ids, num_shared_ids
from offramp.core.protocols import CostModel, Drafter, LengthController, Little, Verifier
from offramp.core.request import (
    ENGINE_CHOICE,
    EXACT,
    FULL_DEPTH,
    REJECTION,
    DraftParams,
    ExitParams,
    FinishReason,
    Request,
    Sequence,
    SequenceKey,
    TextStop,
    VerifierName,
)
from offramp.core.rows import Rows
from offramp.core.speculation import DraftAsk, Place, StepLoad, Verdict, Written
from offramp.core.tree import NO_DRAFT, TokenTree
from offramp.params import RequestOptions, SamplingParams, StructuredOutputsParams

__all__ = [
    "ENGINE_CHOICE",
    "EXACT",
    "FULL_DEPTH",
    "NO_DRAFT",
    "PAGE_SIZE",
    "REJECTION",
    "CostModel",
    "DraftAsk",
    "DraftOutcome",
    "DraftParams",
    "Drafter",
    "ExitParams",
    "FinishReason",
    "Grammar",
    "IdBuffer",
    "Ids",
    "LengthController",
    "Little",
    "Matcher",
    "Place",
    "Request",
    "RequestOptions",
    "Rows",
    "SamplingParams",
    "Sequence",
    "SequenceKey",
    "StepLoad",
    "StructuredOutputsParams",
    "TextStop",
    "TokenEvent",
    "TokenLogprobs",
    "TokenTree",
    "Verdict",
    "Verifier",
    "VerifierName",
    "Written",
    "num_shared_ids",
]
