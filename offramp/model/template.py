"""A model's chat template: messages -> prompt text or token ids. Control tokens come from the template alone."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.errors import InvalidRequestError, ModelError
from offramp.fork import in_child
from offramp.model.directory import GGUF_TEMPLATE, template_files
from offramp.model.disguise import Disguise
from offramp.model.metadata import Fields, read_json
from offramp.model.nesting import nested_size
from offramp.model.template_limits import Budget, TemplateLimitError
from offramp.model.template_values import GIVEN, Message, refuse_unread, refuse_unread_calls, template_values
from offramp.model.tokenizer import Tokenizer
from offramp.model.tool_format import ToolFormat, tool_format_of

if TYPE_CHECKING:
    import jinja2

    from offramp.model.sandbox import TemplateEnvironment

TOOL_USE = "tool_use"  # the name that transformers looks for when there are tools
MAX_SOURCE = 100_000  # characters of a template
DIGITS = 16  # of an identity
MAX_SECONDS = 4.0  # of CPU time, for all renderings of one request


class ChatTemplate:
    """The templates of one model; safe to share between threads. Compiled at first use: a broken one hurts only chat.

    Errors: InvalidRequestError if there is no template, or for messages that are malformed or that it refuses;
    ModelError for a template that is broken, hostile or endless.
    """

    def __init__(self, sources: Mapping[str, str], tokens: Mapping[str, str] | None = None) -> None:
        """`sources` maps names to template texts: "default", and "tool_use" for requests with tools; `tokens` names
        like bos_token to their texts.
        """
        self._sources = dict(sources)
        self._tokens = dict(tokens or {})
        self._compiled: dict[str, jinja2.Template] = {}
        self._read: dict[str, frozenset[str]] = {}  # the names that each template looks at
        self._new_lock()
        in_child(self._new_lock)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate:
        """The template in a GGUF file's metadata, if any."""
        fields = Fields(metadata, "GGUF metadata")
        named = {
            key.removeprefix(GGUF_TEMPLATE).removeprefix(".") or "default": fields.text(key)
            for key in metadata
            if key == GGUF_TEMPLATE or key.startswith(f"{GGUF_TEMPLATE}.")
        }
        return cls(named, tokenizer.named_texts)

    @classmethod
    def from_directory(cls, directory: Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a Hugging Face model directory, if any: *.jinja, or else in tokenizer_config.json."""
        return cls(_directory_sources(directory), tokenizer.named_texts)

    def _new_lock(self) -> None:
        self._lock = threading.Lock()  # held while compiling, not while rendering

    @property
    def available(self) -> bool:
        """Whether the model has a template; without one, chat is refused and plain completion works."""
        return bool(self._sources)

    @property
    def identity(self) -> str:
        """Hexadecimal digits: equal ones, equal prompts of the same messages."""
        texts = json.dumps([self._sources, self._tokens], sort_keys=True)
        return hashlib.sha256(texts.encode()).hexdigest()[:DIGITS]

    @property
    def tool_format(self) -> ToolFormat:
        """How the model writes calls of tools, as far as the template for requests with tools tells."""
        return tool_format_of(self._sources.get(TOOL_USE) or self._sources.get("default", ""))

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt as text, for people: special-token text in contents looks like the template's own.

        `variables` are further ones, such as enable_thinking. What the template never looks at is refused.
        """
        values = template_values(messages, tools, documents, variables)
        return self._render(values, add_generation_prompt, _deadline())

    def encode_chat(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> list[int]:
        """The prompt's ids: those of the rendered text, except that no text that was given makes a special token.
        Starts with exactly one BOS if the model wants one, whether the template writes it or not.
        """
        values = template_values(messages, tools, documents, variables)
        deadline = _deadline()
        disguise = Disguise(tokenizer.special_texts.values(), values, self._source(values))
        plain = self._render(values, add_generation_prompt, deadline)
        if not disguise.needed:
            return tokenizer.encode(plain)
        for hidden in disguise.strongest_first(values):
            try:
                text = self._render(hidden, add_generation_prompt, deadline)
            except (InvalidRequestError, ModelError):
                continue  # the template looks into contents and must see more of them
            if disguise.reveal(text) == plain:
                return tokenizer.encode_masked(text, disguise.masks)
        # It treats special-token text in a way of its own: it gets to see none.
        text = self._render(disguise.hide_specials(values), add_generation_prompt, deadline)
        return tokenizer.encode_masked(text, disguise.masks)

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

    def _render(self, values: Any, add_generation_prompt: bool, deadline: float) -> str:
        from jinja2 import TemplateError

        from offramp.model.sandbox import RaisedByTemplate

        source = self._source(values)
        refuse_unread_calls(values["messages"], source)
        variables = values | self._tokens | {"add_generation_prompt": add_generation_prompt}
        try:
            budget = Budget(nested_size(variables), deadline)
            if values.keys() - GIVEN or values["tools"] or values["documents"]:
                refuse_unread(values, self._names_read(self._name(values), source, budget))
            return _generate(self._template(self._name(values), source, budget), variables, budget)
        except InvalidRequestError:
            raise
        except RaisedByTemplate as error:
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {_first_line(error)}",
                hint="change the roles or their order as it says",
                param="messages",
            ) from error
        except (TemplateError, TemplateLimitError) as error:
            raise _broken(_first_line(error)) from error
        except Exception as error:  # a template is a program: it can fail in any way
            raise _broken(f"{type(error).__name__}: {_first_line(error)}") from error

    def _template(self, name: str, source: str, budget: Budget) -> jinja2.Template:
        """Compiled by the first who asks."""
        with self._lock:
            if name not in self._compiled:
                self._compiled[name] = _environment(source, budget).from_string(source)
            return self._compiled[name]

    def _names_read(self, name: str, source: str, budget: Budget) -> frozenset[str]:
        from jinja2.meta import find_undeclared_variables

        with self._lock:
            if name not in self._read:
                tree = _environment(source, budget).parse(source)
                self._read[name] = frozenset(find_undeclared_variables(tree))
            return self._read[name]


def _environment(source: str, budget: Budget) -> TemplateEnvironment:
    from offramp.model.sandbox import TemplateEnvironment

    if len(source) > MAX_SOURCE:
        raise TemplateLimitError(f"it is {len(source)} characters long, more than {MAX_SOURCE}")
    environment = TemplateEnvironment()
    environment.budget = budget  # constants are folded
    return environment


def _generate(template: jinja2.Template, variables: Mapping[str, object], budget: Budget) -> str:
    from offramp.model.sandbox import TemplateEnvironment

    assert isinstance(template.environment, TemplateEnvironment)
    template.environment.budget = budget
    return template.environment.concat(template.generate(variables))


def _deadline() -> float:
    return time.thread_time() + MAX_SECONDS


def _directory_sources(directory: Path) -> dict[str, str]:
    files = template_files(directory)
    if files:
        return files
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
        hint="use plain completion, or put a working chat_template.jinja into the folder that you name as the model",
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
