"""What a line that begins with a slash does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from offramp.cli.chat.conversation import Conversation, load, save
from offramp.cli.chat.session import Session
from offramp.cli.messages import counted, note_context_ends_first, say
from offramp.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Command:
    """`run` gets the text after the name; returns False to leave the chat."""

    run: Callable[[Session, str], bool]
    usage: str
    help: str


def obey(session: Session, line: str) -> bool:
    """Run the command in `line`; False to leave the chat. An unknown one raises InvalidRequestError."""
    name, rest = [*line.split(maxsplit=1), ""][:2]
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidRequestError(f"no command is called {name!r}", hint=f"commands: {', '.join(COMMANDS)}")
    if rest and command.usage == name:
        raise InvalidRequestError(f"{name} takes nothing behind it", hint=f"{name} alone: {command.help}")
    return command.run(session, rest)


def is_command(line: str) -> bool:
    """Whether a message is meant for us: a pasted text of several lines is not, unless it names a known command."""
    return line.startswith("/") and ("\n" not in line or line.split(maxsplit=1)[0] in COMMANDS)


def _help(session: Session, rest: str) -> bool:
    for command in COMMANDS.values():
        say(f"{command.usage:<22} {command.help}")
    say("A line that ends with \\ goes on in the next. Ctrl-C stops an answer, Ctrl-D leaves.")
    return True


def _system(session: Session, rest: str) -> bool:
    if rest:
        session.conversation.set_system(None if rest == "none" else rest)
    system = session.conversation.system or "none"
    say(f"system: {system if not rest or len(system) <= ECHOED else f'{system[:ECHOED]}...'}")
    return True


def _reset(session: Session, rest: str) -> bool:
    session.conversation.reset()
    say("the conversation starts anew")
    return True


def _forget(session: Session, rest: str) -> bool:
    left = "dropped the oldest exchange" if session.conversation.forget_oldest() else "nothing to drop"
    say(left)
    return True


def _regenerate(session: Session, rest: str) -> bool:
    if session.params.greedy or session.params.seed is not None:
        say("note: the same answer comes again: set a temperature, and seed to none")
    session.ask_again()
    return True


def _save(session: Session, rest: str) -> bool:
    file = _file(rest, "/save")
    replaced = save(session.conversation, file)
    messages = counted(len(session.conversation.messages), "message")
    say(f"replaced {rest} with {messages}" if replaced else f"saved {messages} to {rest}")
    return True


def _load(session: Session, rest: str) -> bool:
    session.conversation = load(_file(rest, "/load"))
    say_loaded(session.conversation, rest)
    return True


def _set(session: Session, rest: str) -> bool:
    """`/set` shows the settings, `/set name value` changes one; values are JSON or bare text, `none` is None."""
    names = [field.name for field in fields(session.params) if field.name not in FIXED]
    name, _, text = rest.partition(" ")
    if not rest:
        say(", ".join(f"{name}={getattr(session.params, name)!r}" for name in names))
        return True
    if name not in names or not text.strip():
        raise InvalidRequestError(f"/set {rest!r} is impossible", hint=f"/set NAME VALUE, with {', '.join(names)}")
    value = _value(text.strip())
    changes: dict[str, Any] = {name: None if name == "max_tokens" and value == 0 else value}
    session.params = replace(session.params, **changes)
    say(f"{name}={getattr(session.params, name)!r}")
    if name == "max_tokens":
        note_context_ends_first(0, session.params.max_tokens, session.llm.max_context, name="max_tokens")
    return True


def _exit(session: Session, rest: str) -> bool:
    return False


def say_loaded(conversation: Conversation, source: object) -> None:
    """Tell what a loaded conversation holds."""
    system = "a system message" if conversation.system is not None else "no system message"
    say(f"loaded {counted(len(conversation.messages), 'message')} from {source}, with {system}")


ECHOED = 200  # characters of a new system message that are shown again

FIXED = ("n", "logprobs", "prompt_logprobs", "logit_bias", "stop_token_ids")
"""Sampling parameters without use in a chat."""

COMMANDS: Mapping[str, Command] = {
    "/help": Command(_help, "/help", "Show this."),
    "/system": Command(_system, "/system [TEXT|none]", "Show, set or remove the system message."),
    "/set": Command(_set, "/set [NAME VALUE]", "Show or change how answers are sampled."),
    "/regenerate": Command(_regenerate, "/regenerate", "Answer the last message again."),
    "/forget": Command(_forget, "/forget", "Drop the oldest exchange."),
    "/reset": Command(_reset, "/reset", "Forget everything but the system message."),
    "/save": Command(_save, "/save FILE", "Save the conversation as JSON."),
    "/load": Command(_load, "/load FILE", "Go on with a saved conversation."),
    "/exit": Command(_exit, "/exit", "Leave."),
}


def _file(rest: str, command: str) -> Path:
    if not rest:
        raise InvalidRequestError(f"{command} needs a file name", hint=f"{command} FILE")
    try:
        return Path(rest).expanduser()
    except RuntimeError as error:
        raise InvalidRequestError(f"{command} {rest}: {error}", hint="write the path in full") from error


def _value(text: str) -> object:
    if text.lower() == "none":
        return None
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
