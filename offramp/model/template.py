"""A model's chat template: messages -> prompt text or token ids. Control tokens come from the template alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.errors import InvalidRequestError, ModelError
from offramp.model.disguise import Disguise
from offramp.model.metadata import Fields, read_json
from offramp.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    import jinja2

Message = Mapping[str, object]
"""`role` and `content` are texts; other keys are passed on to the template."""

GGUF_KEY = "tokenizer.chat_template"
TOOL_USE = "tool_use"  # the name that transformers looks for when there are tools
MAX_SOURCE = 1_000_000  # characters


class ChatTemplate:
    """The templates of one model; safe to share between threads. Compiled at first use: a broken one hurts only chat.

    Errors: InvalidRequestError if there is no template, or for messages that are malformed or that it refuses;
    ModelError for a template that is broken, hostile or endless.
    """

    def __init__(
        self, sources: Mapping[str, str], *, bos_token: str | None = None, eos_token: str | None = None
    ) -> None:
        """`sources` maps names to template texts: "default", and "tool_use" for requests with tools."""
        self._sources = dict(sources)
        tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._tokens = {name: text for name, text in tokens.items() if text is not None}
        self._compiled: dict[str, jinja2.Template] = {}
        self._lock = threading.Lock()  # a template's environment counts one rendering at a time

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate:
        """The template in a GGUF file's metadata, if any."""
        named = {
            key.removeprefix(GGUF_KEY).removeprefix(".") or "default": text
            for key, text in metadata.items()
            if (key == GGUF_KEY or key.startswith(f"{GGUF_KEY}.")) and isinstance(text, str)
        }
        return cls(named, **_special_tokens(tokenizer))

    @classmethod
    def from_directory(cls, directory: Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a Hugging Face model directory, if any: *.jinja, or else in tokenizer_config.json."""
        return cls(_directory_sources(directory), **_special_tokens(tokenizer))

    @property
    def available(self) -> bool:
        """Whether the model has a template; without one, chat is refused and plain completion works."""
        return bool(self._sources)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
    ) -> str:
        """The prompt as text, for people: special-token text in contents looks like the template's own."""
        check_messages(messages)
        return self._render(_variables(messages, tools, documents), add_generation_prompt)

    def encode_chat(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
    ) -> list[int]:
        """The prompt's ids: those of the rendered text, except that text in messages, tools and documents makes no
        special token. Starts with exactly one BOS if the model wants one, whether the template writes it or not.
        """
        check_messages(messages)
        values = _variables(messages, tools, documents)
        disguise = Disguise(tokenizer.special_texts.values(), values, self._source(values))
        plain = self._render(values, add_generation_prompt)
        if not disguise.needed:
            return tokenizer.encode(plain)
        for hidden in disguise.strongest_first(values):
            try:
                text = self._render(hidden, add_generation_prompt)
            except (InvalidRequestError, ModelError):
                continue  # the template looks into contents and must see more of them
            if disguise.reveal(text) == plain:
                return tokenizer.encode_masked(text, disguise.masks)
        # It treats special-token text in a way of its own: it gets to see none.
        return tokenizer.encode_masked(
            self._render(disguise.hide_specials(values), add_generation_prompt), disguise.masks
        )

    def _name(self, values: Mapping[str, object]) -> str:
        return TOOL_USE if values["tools"] and TOOL_USE in self._sources else "default"

    def _source(self, values: Mapping[str, object]) -> str:
        name = self._name(values)
        if name not in self._sources:
            others = f" (it has only: {', '.join(sorted(self._sources))})" if self._sources else ""
            raise InvalidRequestError(
                f"the model has no chat template{others}",
                hint="use plain completion (`offramp generate`, /v1/completions), or an instruct model",
                param="messages",
            )
        return self._sources[name]

    def _render(self, values: Any, add_generation_prompt: bool) -> str:
        from jinja2 import TemplateError

        from offramp.model.sandbox import RaisedByTemplate

        name, source = self._name(values), self._source(values)
        with self._lock:
            try:
                if name not in self._compiled:
                    self._compiled[name] = _compile(source)
                return _generate(self._compiled[name], values | self._tokens, add_generation_prompt)
            except RaisedByTemplate as error:
                raise InvalidRequestError(
                    f"the model's chat template refuses these messages: {_first_line(error)}",
                    hint="change the roles or their order as it says",
                    param="messages",
                ) from error
            except TemplateError as error:
                raise _broken(_first_line(error)) from error
            except Exception as error:  # a template is a program: it can fail in any way
                raise _broken(f"{type(error).__name__}: {_first_line(error)}") from error


def _compile(source: str) -> jinja2.Template:
    from offramp.model.sandbox import TemplateEnvironment, TemplateLimitError

    if len(source) > MAX_SOURCE:
        raise TemplateLimitError(f"it is {len(source)} characters long, more than {MAX_SOURCE}")
    return TemplateEnvironment().from_string(source)


def _generate(template: jinja2.Template, variables: Mapping[str, object], add_generation_prompt: bool) -> str:
    from offramp.model.sandbox import MAX_SIZE, Budget, TemplateEnvironment, TemplateLimitError

    assert isinstance(template.environment, TemplateEnvironment)
    template.environment.budget = Budget()
    pieces, size = [], 0
    for piece in template.generate(variables, add_generation_prompt=add_generation_prompt):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_SIZE:
            raise TemplateLimitError("it writes too much")
    return "".join(pieces)


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse what is not a non-empty list of messages with a role and a content."""
    hint = 'messages is a non-empty list of {"role": ..., "content": ...}'
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidRequestError(f"messages={messages!r:.80} has no messages", hint=hint, param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(f"message {i} is not an object: {message!r:.80}", hint=hint, param="messages")
        for key in ("role", "content"):
            value = message.get(key)
            if not isinstance(value, str) or (key == "role" and not value):
                raise InvalidRequestError(
                    f"message {i}: {key}={value!r:.80} is not a text", hint=hint, param=f"messages[{i}].{key}"
                )


def _variables(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, object]] | None,
    documents: Sequence[Mapping[str, object]] | None,
) -> dict[str, object]:
    return {"messages": list(messages), "tools": tools, "documents": documents}


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str | None]:
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    return {
        "bos_token": None if bos is None else tokenizer.token_text(bos),
        "eos_token": None if eos is None else tokenizer.token_text(eos),
    }


def _directory_sources(directory: Path) -> dict[str, str]:
    main = directory / "chat_template.jinja"
    files = {"default": main} if main.is_file() else {}
    files |= {path.stem: path for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))}
    if files:
        return {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    for name in ("tokenizer_config.json", "chat_template.json"):
        fields = read_json(directory / name) if (directory / name).is_file() else Fields({}, name)
        if fields.has("chat_template"):
            return _named_sources(fields)
    return {}


def _named_sources(fields: Fields) -> dict[str, str]:
    """`chat_template` as one text, or as a list of named ones."""
    value = fields.values["chat_template"]
    if isinstance(value, str):
        return {"default": value}
    named = {}
    for item in value if isinstance(value, list) else [None]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise fields.error("chat_template", "a text or a list of named texts")
        named[item["name"]] = Fields(item, f"{fields.where}: chat_template").text("template")
    return named


def _broken(reason: str) -> ModelError:
    return ModelError(
        f"the model's chat template fails: {reason}",
        hint="use plain completion, or put a working chat_template.jinja beside the model's files",
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
