"""What a client asks for, checked: everything that the engine and the answer's shape need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offramp.core import Grammar, RequestOptions, SamplingParams
from offramp.draft import OFF, REFERENCE
from offramp.errors import InvalidRequestError
from offramp.llm.calling import Calling
from offramp.llm.promises import Kept
from offramp.llm.serving import Execution, Serving
from offramp.params import refused
from offramp.serve.errors import renamed
from offramp.serve.fields import OFFRAMP, PREDICTION, STREAM_OPTIONS
from offramp.serve.messages import text_of
from offramp.serve.prompts import Prompt
from offramp.serve.schema import OfframpBody, SamplingBody, StreamOptionsBody, read
from offramp.serve.served import Served

MAX_ANSWERS = 1024
"""Prompts times choices of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One HTTP request that generates. `prompts` run as requests of their own, at the same time."""

    model: str
    prompts: tuple[Prompt, ...]
    params: SamplingParams
    how: Execution
    kept: Kept
    stream: bool
    include_usage: bool
    cache_salt: str
    grammar: Grammar | None = None
    predicted: bool = False  # drafts come from a predicted output alone
    echo: bool = False
    prompt_logprobs: int | None = None  # shown as vLLM does; `params` may ask for more, for an echo
    calling: Calling | None = None  # how calls of tools are read from the answer
    repeated: Mapping[str, object] = field(default_factory=dict)  # what the answer repeats of the request
    pipeline: Mapping[str, object] | None = None  # what the answer tells of the pipeline that chose the model

    @property
    def shown(self) -> frozenset[int]:
        """Special tokens whose text counts."""
        return frozenset() if self.calling is None else self.calling.shown

    @property
    def report(self) -> str:
        """How much the answer tells of itself."""
        return self.how.report


def execution(
    body: SamplingBody,
    served: Served,
    params: SamplingParams,
    prediction: Mapping[str, object] | None = None,
    *,
    grammar_of: str | None = None,
) -> tuple[Execution, Kept]:
    """The `offramp` object. A predicted output is a text to copy from, where drafts run at all.

    `grammar_of` names the field whose grammar binds the answer, besides those of `params`.
    """
    given = read(OfframpBody, OFFRAMP.keep_honoured(body.offramp, "offramp"), "offramp")
    draft, references = given.draft, tuple(given.references)
    if prediction is not None:
        text = _predicted_text(prediction)
        if draft is not None or references:
            hint = "put the text into offramp.references"
            message = "prediction excludes offramp.draft and offramp.references"
            raise InvalidRequestError(message, hint=hint, param="prediction")
        if text and _drafts(given, served.serving):
            draft, references = REFERENCE, (text,)
    try:
        options = RequestOptions(
            mode=given.mode,
            risk=given.risk,
            exits=given.exits,
            draft=draft,
            max_draft=given.max_draft,
            references=references,
            verifier=given.verifier,
            report=given.report,
        )
        how = served.serving.execution(options, served.loaded.tokenizer)
        return how, served.promises.keep(how, params, grammar_of=grammar_of)
    except InvalidRequestError as error:
        raise renamed(error, {name: f"offramp.{name}" for name in OfframpBody.model_fields}) from None


def _drafts(given: OfframpBody, serving: Serving) -> bool:
    """Whether a request that names no drafter gets one."""
    mode = serving.mode if given.mode is None else given.mode
    return serving.default_draft_in(mode) != OFF and given.max_draft != 0


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
