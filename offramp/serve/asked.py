"""What a client asks for, checked: everything that the engine and the answer's shape need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offramp.core import DraftParams, RequestOptions, SamplingParams
from offramp.draft import OFF
from offramp.errors import InvalidRequestError
from offramp.params import refused
from offramp.serve.errors import renamed
from offramp.serve.fields import OFFRAMP, PREDICTION, STREAM_OPTIONS
from offramp.serve.messages import text_of
from offramp.serve.prompts import Prompt
from offramp.serve.schema import OfframpBody, SamplingBody, StreamOptionsBody, read
from offramp.serve.served import Served

MAX_ANSWERS = 1024
"""Prompts times choices of one request."""

PREDICTION_DRAFTER = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One HTTP request that generates. `prompts` run as requests of their own, at the same time."""

    model: str
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    drafting: DraftParams
    mode: str
    report: str
    stream: bool
    include_usage: bool
    cache_salt: str
    predicted: bool = False  # drafts come from a predicted output alone
    echo: bool = False
    prompt_logprobs: int | None = None  # shown as vLLM does; `params` may ask for more, for an echo


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How the answer shall be made, besides sampling."""

    drafting: DraftParams
    mode: str
    report: str
    predicted: bool


def execution(body: SamplingBody, served: Served, prediction: Mapping[str, object] | None = None) -> Execution:
    """The `offramp` object, and a predicted output as a text to copy from."""
    given = read(OfframpBody, OFFRAMP.keep_honoured(body.offramp, "offramp"), "offramp")
    text = _predicted_text(prediction) if prediction is not None else None
    if text is not None and (given.draft is not None or given.references):
        hint = "put the text into offramp.references"
        message = "prediction excludes offramp.draft and offramp.references"
        raise InvalidRequestError(message, hint=hint, param="prediction")
    copies = text is not None and served.serving.default_draft != OFF and given.mode != "full"
    try:
        options = RequestOptions(
            mode=given.mode,
            risk=given.risk,
            exits=given.exits,
            draft=PREDICTION_DRAFTER if copies else given.draft,
            max_draft=given.max_draft,
            references=tuple(given.references) if text is None else (text,),
            report=given.report,
        )
        drafting = served.serving.drafting(options, served.loaded.tokenizer)
    except InvalidRequestError as error:
        raise renamed(error, {name: f"offramp.{name}" for name in OfframpBody.model_fields}) from None
    mode = served.serving.mode_of(options)
    return Execution(drafting=drafting, mode=mode, report=options.report, predicted=text is not None)


def include_usage(body: SamplingBody) -> bool:
    """`stream_options`, which make sense for a stream only."""
    if body.stream_options is None:
        return False
    if not body.stream:
        hint = "set stream to true"
        raise InvalidRequestError("stream_options needs stream", hint=hint, param="stream_options")
    options = STREAM_OPTIONS.keep_honoured(body.stream_options, "stream_options")
    return read(StreamOptionsBody, options, "stream_options").include_usage


def check_sizes(prompts: tuple[Prompt, ...], body: SamplingBody, params: SamplingParams) -> None:
    """Refuse more answers than one request may have, and what a stream has no place for."""
    if len(prompts) * params.n > MAX_ANSWERS:
        raise refused("n", f"{params.n} for each of {len(prompts)} prompts", f"at most {MAX_ANSWERS} answers in all")
    if body.stream and body.prompt_logprobs is not None:
        hint = "leave stream out"
        raise InvalidRequestError("a stream has no prompt_logprobs", hint=hint, param="prompt_logprobs")


def _predicted_text(prediction: Mapping[str, object]) -> str:
    kept = PREDICTION.keep_honoured(prediction, "prediction")
    if kept.get("type") != "content":
        raise refused("prediction.type", kept.get("type"), '"content"')
    return text_of(kept.get("content"), "prediction.content")
