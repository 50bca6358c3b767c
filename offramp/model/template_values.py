"""What a chat template is given: messages, tools, documents, and variables of the caller's own; checked."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence

from offramp.errors import InvalidRequestError
from offramp.model.nesting import MAX_DEPTH, NestingError, nested_size

Message = Mapping[str, object]
"""`role` and `content` are texts; other keys are passed on to the template. Arguments of `tool_calls` are objects or
their JSON text.
"""

MAX_GIVEN = 100_000_000  # nested size of messages, tools, documents or a variable
GIVEN = frozenset(("messages", "tools", "documents"))
TAKEN = GIVEN | {"add_generation_prompt"}
TOKEN_NAME = "_token"  # how names like bos_token end, which the tokenizer fills in
FUNCTIONS = frozenset(("range", "dict", "namespace", "raise_exception", "strftime_now"))
VARIABLES = "chat_template_kwargs"  # what callers know them by


def template_values(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, object]] | None,
    documents: Sequence[Mapping[str, object]] | None,
    variables: Mapping[str, object] | None,
) -> dict[str, object]:
    """The template's variables by name, each small and flat enough to be walked. Raises InvalidRequestError.

    A message's keys that hold None are left out: to a template that asks for them, they are not there.
    """
    check_messages(messages)
    for name, value in (("messages", messages), ("tools", tools), ("documents", documents)):
        _check_size(name, value)
    values = {
        "messages": [_plain(message, f"messages[{i}]") for i, message in enumerate(messages)],
        "tools": _objects("tools", tools),
        "documents": _objects("documents", documents),
    }
    return values | dict(_checked_variables({} if variables is None else variables))


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse what is not a non-empty list of messages with a role and a content, or tool calls instead of one."""
    hint = 'messages is a non-empty list of {"role": ..., "content": ...}'
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidRequestError(f"messages={_shown(messages)} has no messages", hint=hint, param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(f"message {i} is not an object: {_shown(message)}", hint=hint, param="messages")
        for key in ("role", "content"):
            value = message.get(key)
            if key == "content" and value is None and isinstance(message.get("tool_calls"), list | tuple):
                continue
            if not isinstance(value, str) or (key == "role" and not value):
                raise InvalidRequestError(
                    f"message {i}: {key}={_shown(value)} is not a text", hint=hint, param=f"messages[{i}].{key}"
                )


def refuse_unread(values: Mapping[str, object], read: frozenset[str]) -> None:
    """Refuse what was given to a template that looks at the names `read` only, and would pass over it."""
    for name in ("tools", "documents"):
        if values[name] and name not in read:
            raise InvalidRequestError(
                f"the model's chat template has no place for {name}", hint="put them into a message", param=name
            )
    for name in sorted(values.keys() - GIVEN - read):
        own = (one for one in read - TAKEN - FUNCTIONS if not one.endswith(TOKEN_NAME))
        known = ", ".join(sorted(own)) or "none"
        raise InvalidRequestError(
            f"{VARIABLES}: the model's chat template knows no {name!r}",
            hint=f"variables it looks at: {known}",
            param=VARIABLES,
        )


def refuse_unread_calls(messages: Sequence[Message], source: str) -> None:
    """Refuse earlier calls of tools where the template's text never speaks of them."""
    for i, message in enumerate(messages):
        if message.get("tool_calls") and "tool_calls" not in source:
            raise InvalidRequestError(
                "the model's chat template has no place for tool_calls",
                hint="put them into the content",
                param=f"messages[{i}].tool_calls",
            )


def _checked_variables(variables: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(variables, Mapping):
        raise _impossible(f"{VARIABLES}={_shown(variables)} is not an object")
    for name, value in variables.items():
        taken = not isinstance(name, str) or name in TAKEN | FUNCTIONS or name.endswith(TOKEN_NAME)
        if taken or not name.isidentifier():
            raise _impossible(f"{VARIABLES}: {_shown(name)} can't be set")
        _check_size(f"{VARIABLES}.{name}", value)
        if not _is_plain(value):
            raise _impossible(f"{VARIABLES}: {name}={_shown(value)} is not a JSON value")
    return variables


def _plain(message: Message, where: str) -> dict[str, object]:
    """The message without keys that hold None; arguments of tool calls as objects, which templates expect."""
    plain = {key: value for key, value in message.items() if value is not None}
    calls = plain.get("tool_calls")
    if isinstance(calls, list | tuple):
        plain["tool_calls"] = [_tool_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return plain


def _tool_call(call: object, where: str) -> dict[str, object]:
    """A call as OpenAI writes it, {"function": {"name", "arguments"}, ...}, or its function alone."""
    if not isinstance(call, Mapping):
        raise _impossible_call(where, call, "an object")
    inner = call.get("function")
    if inner is None:
        return _with_arguments(call, where)
    if not isinstance(inner, Mapping):
        raise _impossible_call(f"{where}.function", inner, "an object")
    return {**call, "function": _with_arguments(inner, f"{where}.function")}


def _with_arguments(function: Mapping[str, object], where: str) -> dict[str, object]:
    if not isinstance(function.get("name"), str):
        raise _impossible_call(f"{where}.name", function.get("name"), "a text")
    given = function.get("arguments")
    arguments = given
    if isinstance(given, str):
        try:
            arguments = json.loads(given or "{}")
        except (ValueError, RecursionError):
            raise _impossible_call(f"{where}.arguments", given, "an object, or its JSON text") from None
    if arguments is not None and not isinstance(arguments, Mapping):
        raise _impossible_call(f"{where}.arguments", given, "an object, or its JSON text")
    _check_size(f"{where}.arguments", arguments)
    return {**function, "arguments": arguments or {}}


def _objects(name: str, values: object) -> list[object] | None:
    """A list of objects, or None."""
    if values is None:
        return None
    if not isinstance(values, list | tuple) or not all(isinstance(value, Mapping) for value in values):
        raise InvalidRequestError(f"{name}={_shown(values)} is impossible", hint="give a list of objects", param=name)
    return list(values)


def _impossible_call(where: str, value: object, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where}={_shown(value)} is impossible", hint=f"it takes {wanted}", param=where)


def _impossible(message: str) -> InvalidRequestError:
    hint = "it maps names that the chat template looks at to JSON values; messages, tools and the like are given apart"
    return InvalidRequestError(message, hint=hint, param=VARIABLES)


def _is_plain(value: object) -> bool:
    """Whether JSON could hold it: what else there is may have methods that a template must not call."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    return value is None or isinstance(value, str | int | float)


def _check_size(name: str, value: object) -> None:
    hint = f"send less than {MAX_GIVEN} characters, and lists and objects less than {MAX_DEPTH} deep"
    try:
        size = nested_size(value, MAX_GIVEN)
    except NestingError as error:
        raise InvalidRequestError(f"{name} has lists or objects {error}", hint=hint, param=name) from error
    if size > MAX_GIVEN:
        raise InvalidRequestError(f"{name} holds more than {MAX_GIVEN} characters", hint=hint, param=name)


def _shown(value: object) -> str:
    """A short repr, whatever the value."""
    try:
        return reprlib.repr(value)[:80]
    except Exception:  # a repr is a program, and numbers of too many digits have none
        return f"a {type(value).__name__}"
