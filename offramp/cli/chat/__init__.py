"""`offramp chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli import options
from offramp.cli.messages import note_context_ends_first, note_idle_exits, say, show_failure
from offramp.cli.streams import OutputError, standard_input
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.cli.chat.conversation import Conversation
    from offramp.cli.chat.session import Session
    from offramp.llm import LLM


DEFAULT_MAX_TOKENS = 1024
"""Of an answer: a model that finds no end would fill its context."""


def command(
    model: options.Model = options.DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    load: Annotated[Path | None, typer.Option(help="Go on with a saved conversation.")] = None,
    chat_template_kwargs: options.TemplateVariables = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    max_tokens: Annotated[
        str | None,
        typer.Option(help="Tokens of an answer at most; none or 0: the rest of the context.", show_default="1024"),
    ] = None,
    repetition_penalty: options.RepetitionPenalty = None,
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
    debug: options.Debug = False,
) -> None:
    """Chat with a model. Samples as the checkpoint recommends, else with temperature 0.7 and top-p 0.95.

    Piped input is one message a line; an error is told on stderr, and the next line is read. The exit code is then 0.
    """
    standard_input()
    conversation = _conversation(load, system)
    variables = options.template_variables(chat_template_kwargs)
    chosen = options.given(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        repetition_penalty=repetition_penalty,
    )

    from offramp.core import SamplingParams
    from offramp.llm import LLM

    chosen["max_tokens"] = DEFAULT_MAX_TOKENS if max_tokens is None else _max_tokens(max_tokens)
    SamplingParams(**chosen)  # refuses impossible values before the model is loaded
    drafting = options.given(
        draft=draft, draft_length=draft_length, max_draft=max_draft, draft_model=draft_model, drafter=drafter
    )
    writing = options.given(
        little_rollback=little_rollback,
        little_fallback=little_fallback,
        max_little=max_little,
        little_calibration=little_calibration,
    )
    options.draft_request(**drafting, exits=exits, mode=mode, verifier=verifier, writing=tuple(writing))
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
        session = _session(llm, chosen, conversation, variables)
        if max_tokens is not None:
            note_context_ends_first(0, chosen["max_tokens"], llm.max_context)
        if sys.stdin.isatty():
            say(f"{model}, {llm.max_context} tokens of context. /help lists the commands, Ctrl-D leaves.")
        converse(session, debug=debug)


def _conversation(path: Path | None, system: str | None) -> Conversation:
    """A new conversation or a saved one, with the system message if one is given."""
    from offramp.cli.chat.commands import say_loaded
    from offramp.cli.chat.conversation import Conversation, load

    conversation = load(path) if path else Conversation()
    if path:
        say_loaded(conversation, path)
    if system is not None:
        conversation.set_system(system)
    return conversation


def _max_tokens(text: str) -> int | None:
    """What --max-tokens says; None is the rest of the context. Ranges are checked with the other parameters."""
    if text.lower() in ("none", "0"):
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidRequestError(f"--max-tokens {text!r} is impossible", hint="a number, or none") from None


def _session(
    llm: LLM, chosen: dict[str, Any], conversation: Conversation, variables: dict[str, object] | None
) -> Session:
    """Settings are those chosen, then those of the checkpoint, then ours."""
    from dataclasses import replace

    from offramp.cli.chat.session import Session
    from offramp.core import SamplingParams
    from offramp.llm.defaults import recommended_params

    if not llm.model.template.available:
        hint = "use `offramp generate`, or a chat model"
        raise InvalidRequestError(f"{llm.model.name} has no chat template", hint=hint)
    otherwise = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=None)
    params = recommended_params(llm.model.generation, otherwise, max_tokens=None)
    return Session(llm, replace(params, **chosen), conversation, variables)


def converse(session: Session, *, debug: bool = False) -> None:
    """Read and answer until the end of input or /exit. Errors are told, and the chat goes on."""
    from offramp.cli.chat.terminal import LineReader

    reader = LineReader()
    while True:
        try:
            if not _heed(session, reader.read(), debug):
                return
        except EOFError:
            if sys.stdin.isatty():
                say("")
            return
        except KeyboardInterrupt:
            say("")
            say("Ctrl-D leaves")
        except InvalidRequestError as error:  # what was typed is no text
            show_failure(error)


def _heed(session: Session, line: str, debug: bool) -> bool:
    """Answer or obey; False to leave. No error, not even a bug, costs the conversation."""
    from offramp.cli.chat.commands import is_command, obey

    try:
        if is_command(line):
            return obey(session, line)
        if line:
            session.ask(line)
    except BrokenPipeError:  # nobody listens any more
        raise
    except Exception as error:
        if isinstance(error, OutputError) and not sys.stdin.isatty():  # nobody can save it, and a script should know
            raise
        if debug:
            say(traceback.format_exc().rstrip())
        show_failure(error)
    return True
