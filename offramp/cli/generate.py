"""`offramp generate`: continue a text, or answer it as a chat message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli import options
from offramp.cli.messages import note_context_ends_first, note_idle_exits, say, statistics_line
from offramp.cli.streams import put, standard_input
from offramp.cli.waiting import ReadingNotice
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.core import RequestOptions, SamplingParams
    from offramp.llm import LLM, DeltaStream, RequestOutput


def command(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text; - reads it from standard input.")],
    model: options.Model = options.DEFAULT_MODEL,
    chat: Annotated[bool, typer.Option("--chat", help="Answer the prompt as a chat message.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.")] = None,
    chat_template_kwargs: options.TemplateVariables = None,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens to generate at most.", show_default="256")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens before the text may end.", show_default="0")] = None,
    stop: options.Stop = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after end tokens.")] = False,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    n: Annotated[int | None, typer.Option("--n", help="Choices, with --json.", show_default="1")] = None,
    logprobs: Annotated[int | None, typer.Option(help="Log-probabilities of the k best tokens, with --json.")] = None,
    json_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The answer is JSON that fits the schema in this file.")
    ] = None,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    mode: options.Mode = "lossless",
    exits: options.Exits = None,
    risk: options.Risk = None,
    exit_threshold: options.ExitThreshold = None,
    exit_measure: options.ExitMeasure = None,
    exit_predictor: options.ExitPredictor = None,
    exit_decay: options.ExitDecay = None,
    exit_fill: options.ExitFill = None,
    exit_batching: options.ExitBatching = None,
    draft: options.Draft = None,
    draft_length: options.DraftLength = None,
    max_draft: options.MaxDraft = None,
    draft_model: options.DraftModel = None,
    drafter: options.DrafterPack = None,
    little_rollback: options.LittleRollback = None,
    little_fallback: options.LittleFallback = None,
    max_little: options.MaxLittle = None,
    little_calibration: options.LittleCalibration = None,
    verifier: options.Verifier = "exact",
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="A text file to copy from, for --draft auto or reference; can be repeated."),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Continue PROMPT, or answer it with --chat. Greedy unless a temperature is given."""
    _check_combinations(system, chat_template_kwargs, chat, n, logprobs, as_json)
    variables = options.template_variables(chat_template_kwargs)
    question = Question(text=read_prompt(prompt), chat=chat, system=system, variables=variables)
    chosen = options.given(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=stop,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        n=n,
        logprobs=logprobs,
    )

    from offramp.core import SamplingParams, StructuredOutputsParams
    from offramp.llm import LLM

    drafting = options.given(
        draft=draft, draft_length=draft_length, max_draft=max_draft, draft_model=draft_model, drafter=drafter
    )
    writing = options.given(
        little_rollback=little_rollback,
        little_fallback=little_fallback,
        max_little=max_little,
        little_calibration=little_calibration,
    )
    texts = [read_reference(path) for path in reference or ()]
    request = options.draft_request(
        **drafting, exits=exits, mode=mode, verifier=verifier, references=texts, writing=tuple(writing)
    )
    if json_schema is not None:
        chosen["structured_outputs"] = StructuredOutputsParams(json=read_reference(json_schema))
    params = SamplingParams(ignore_eos=ignore_eos, **chosen)
    leaving = options.given(
        exits=exits,
        risk=risk,
        exit_threshold=exit_threshold,
        exit_measure=exit_measure,
        exit_predictor=exit_predictor,
        exit_decay=exit_decay,
        exit_fill=exit_fill,
        exit_batching=exit_batching,
    )
    with LLM(
        model,
        weights=weights,
        kv=kv,
        kv_memory=kv_memory,
        threads=threads,
        max_context=max_context,
        mode=mode,
        verifier=verifier,
        **leaving,
        **drafting,
        **writing,
    ) as llm:
        note_idle_exits(exits, mode, options.EARLY_MODES, draft)
        if as_json:
            print_json(llm, question, params, request, asked=max_tokens)
        else:
            print_stream(llm, _open(llm, question, params, request), asked=max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: a text to continue, or with `chat` a message to answer."""

    text: str
    chat: bool
    system: str | None
    variables: Mapping[str, object] | None  # for the chat template

    @property
    def messages(self) -> list[Mapping[str, object]]:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": self.text}]


def _check_combinations(
    system: str | None, variables: str | None, chat: bool, n: int | None, logprobs: int | None, as_json: bool
) -> None:
    if system is not None and not chat:
        raise InvalidRequestError("--system needs --chat", hint="add --chat, or write it into the prompt")
    if variables is not None and not chat:
        raise InvalidRequestError("--chat-template-kwargs needs --chat", hint="add --chat")
    if not as_json and (logprobs is not None or n not in (None, 1)):
        name = "--n" if logprobs is None else "--logprobs"
        raise InvalidRequestError(f"{name} needs --json", hint="add --json")


def read_prompt(prompt: str) -> str:
    """The argument itself, or standard input for "-"."""
    if prompt != "-":
        return prompt
    try:
        text = standard_input().buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "convert the text to UTF-8 first"
        raise InvalidRequestError(f"standard input is not UTF-8 (byte {error.start})", hint=hint) from error
    except OSError as error:
        hint = "name another file"
        raise InvalidRequestError(f"can't read standard input: {error.strerror or error}", hint=hint) from error
    if not text:
        raise InvalidRequestError(
            "standard input is empty", hint="check the command before the pipe, or write a PROMPT"
        )
    return text


def read_reference(path: Path) -> str:
    """A text file, whole."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        hint = "convert it to UTF-8 first"
        raise InvalidRequestError(f"{path} is not UTF-8 (byte {error.start})", hint=hint) from error
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror or error}", hint="check the path") from error


def print_stream(llm: LLM, stream: DeltaStream, *, asked: int | None) -> None:
    """Text to stdout as it comes, one line of statistics to stderr; an error of the model is raised at the end.

    `asked` is the number of tokens that the user asked for, if they did.
    """
    note_context_ends_first(stream.num_prompt_tokens, asked, llm.max_context)
    error: Exception | None = None
    with stream, ReadingNotice(stream.num_prompt_tokens) as notice:
        try:
            for delta in stream:
                notice.clear()
                put(delta.text)
                error = delta.error
        except KeyboardInterrupt:
            notice.clear()
            say(f"\n{statistics_line(stream.report())}")
            raise
    put("\n")
    say(statistics_line(stream.report()))
    if error is not None:
        raise error


def print_json(
    llm: LLM, question: Question, params: SamplingParams, request: RequestOptions, *, asked: int | None
) -> None:
    """The whole answer as one JSON object; `asked` as in `print_stream`."""
    if question.chat:
        _check_template(llm)
        output = llm.chat(question.messages, params, request, chat_template_kwargs=question.variables)
    else:
        [output] = llm.generate(question.text, params, request)
    put(json.dumps(as_object(llm.model.name, output), ensure_ascii=False) + "\n")
    note_context_ends_first(len(output.prompt_token_ids), asked, llm.max_context)
    for choice in output.outputs:
        if choice.error is not None:
            raise choice.error


LEAST_LOGPROB = -9999.0
DERIVED = ("mean_acceptance_length", "draft_acceptance_rate")


def as_object(model: str, output: RequestOutput) -> dict[str, object]:
    """An answer as plain JSON values."""
    choices = [{**_finite(asdict(choice)), "error": choice.error and str(choice.error)} for choice in output.outputs]
    return {
        "model": model,
        "prompt_token_ids": output.prompt_token_ids,
        "outputs": choices,
        "report": {**asdict(output.report), **{name: getattr(output.report, name) for name in DERIVED}},
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: log-probabilities of tokens that an exit's head does not know become very small."""
    if isinstance(value, float):
        return max(value, LEAST_LOGPROB)
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _check_template(llm: LLM) -> None:
    if not llm.model.template.available:
        hint = "leave out --chat, or use a chat model"
        raise InvalidRequestError(f"{llm.model.name} has no chat template", hint=hint)


def _open(llm: LLM, question: Question, params: SamplingParams, request: RequestOptions) -> DeltaStream:
    if question.chat:
        _check_template(llm)
        return llm.stream_chat(question.messages, params, request, chat_template_kwargs=question.variables)
    return llm.stream(question.text, params, request)
