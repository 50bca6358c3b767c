"""`offramp chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import say, show_error
from offramp.errors import InvalidRequestError, OfframpError

if TYPE_CHECKING:
    from offramp.cli.chat.session import Session


def command(
    model: options.Model = options.DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    load: Annotated[Path | None, typer.Option(help="Go on with a saved conversation.")] = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of an answer at most.", show_default="the rest of the context")
    ] = None,
    repetition_penalty: options.RepetitionPenalty = None,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    debug: options.Debug = False,
) -> None:
    """Chat with a model. Samples as the checkpoint recommends, else with temperature 0.7 and top-p 0.95."""
    from dataclasses import replace

    from offramp.cli.chat.conversation import Conversation
    from offramp.cli.chat.conversation import load as load_conversation
    from offramp.cli.chat.session import Session
    from offramp.core import SamplingParams
    from offramp.llm import LLM
    from offramp.llm.defaults import recommended_params

    conversation = load_conversation(load) if load else Conversation()
    if system is not None:
        conversation.set_system(system)
    chosen = options.given(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        repetition_penalty=repetition_penalty,
    )
    SamplingParams(**chosen)  # refuses impossible values before the model is loaded
    with LLM(model, weights=weights, kv=kv, kv_memory=kv_memory, threads=threads, max_context=max_context) as llm:
        if not llm.model.template.available:
            raise InvalidRequestError(f"{model} has no chat template", hint="use `offramp generate`, or a chat model")
        otherwise = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=None)
        params = recommended_params(llm.model.generation, otherwise, max_tokens=None)
        session = Session(llm, replace(params, **chosen), conversation)
        if sys.stdin.isatty():
            say(f"{model}, {llm.max_context} tokens of context. /help lists the commands, Ctrl-D leaves.")
        converse(session)


def converse(session: Session) -> None:
    """Read and answer until the end of input or /exit. Errors are told, and the chat goes on."""
    from offramp.cli.chat.commands import is_command, obey
    from offramp.cli.chat.terminal import LineReader

    reader = LineReader()
    while True:
        try:
            line = reader.read()
            if is_command(line):
                if not obey(session, line):
                    return
            elif line:
                session.ask(line)
        except EOFError:
            if sys.stdin.isatty():
                say("")
            return
        except KeyboardInterrupt:
            say("")
            say("Ctrl-D leaves")
        except OfframpError as error:
            show_error(error.message, error.hint)
