"""Jinja for templates that come with a model: what transformers offers them, no access to anything, bounded work.

A template can't reach attributes that matter (jinja's immutable sandbox). Its loop items, calls, time and string sizes
are counted, and what would make a huge string is refused before it does, so that a hostile template fails with
TemplateLimitError instead of hanging. (One operation, once begun, is not interrupted.)
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sized
from datetime import datetime
from functools import wraps
from itertools import islice
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 2_000_000  # loop items, and calls times CALL_STEPS, of one rendering
CALL_STEPS = 10
MAX_SECONDS = 4.0
MAX_SIZE = 32_000_000  # characters of a string, items of a list
MAX_BITS = 4096  # of an integer
WIDE = re.compile(r"\d{6,}|\*")  # a width in a format string that no chat needs

GROWING = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "wordwrap", "batch", "slice", "tojson"}
"""Methods and filters whose result can be as long as a text times a number, or times another text."""


class TemplateLimitError(jinja2.TemplateRuntimeError):
    """The template works too long or makes too much."""


class RaisedByTemplate(jinja2.TemplateRuntimeError):
    """The template called raise_exception: it refuses these messages."""


class Budget:
    """What one rendering has left."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0 or time.monotonic() > self._deadline:
            raise TemplateLimitError("the template runs too long")

    def loop(self, items: Iterable[object]) -> Iterable[object]:
        """What a loop runs over, paid before it starts."""
        counted = items if isinstance(items, Sized) else list(islice(items, self._steps + 1))
        self.spend(len(counted))
        return counted


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template. It holds the budget of the rendering that goes on: one at a time."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, "jinja2.ext.loopcontrols"])
        self.budget = Budget()
        self.filters["tojson"] = tojson
        self.filters |= {name: self._bounded(name, function) for name, function in self.filters.items()}
        self.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}

    def loop_items(self, items: Iterable[object]) -> Iterable[object]:
        """What compiled templates call on whatever they loop over."""
        return self.budget.loop(items)

    def concat_text(self, *parts: object) -> str:
        """What compiled templates call for the operator `~`."""
        return "".join(map(str, parts))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr != "translate" and bool(super().is_safe_attribute(obj, attr, value))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__name__", "")
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)  # the sandbox wraps str.format
        if isinstance(function, LoopContext):
            args = (self.budget.loop(args[0]), *args[1:])  # a recursive loop
        self._before(name, [owner] * isinstance(owner, str) + [*args, *kwargs.values()])
        return check_size(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and (isinstance(left, Sized) or isinstance(right, Sized)):
            _refuse_above(_length(left) * _length(right))
        if operator == "**":
            _check_power(left, right)
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        return check_size(super().call_binop(context, operator, left, right))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _LeadThroughBudget().visit(tree)
        return tree

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps jinja's marks of what the filter wants passed
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self._before(name, [*args, *kwargs.values()])
            return check_size(function(*args, **kwargs))

        return bounded

    def _before(self, name: str, values: list[Any]) -> None:
        """Pay for a call, and refuse it if its result could be huge."""
        self.budget.spend(CALL_STEPS)
        texts = [value for value in values if isinstance(value, str)]
        if name == "replace" and len(texts) > 2:
            text, old, new = texts[:3]
            _refuse_above((text.count(old) + 1) * len(new) + len(text))
        elif name == "join":
            items = next((value for value in values if isinstance(value, list | tuple)), [])
            _refuse_above(sum(_length(item) + max(map(len, texts), default=0) for item in items))
        elif name in ("format", "format_map", "strftime_now"):
            _check_format(next(iter(texts), ""))
        elif name in GROWING:
            _refuse_above(len(next(iter(texts), "") or " ") * max(map(_length, values), default=1))


class GenerationBlock(Extension):
    """`{% generation %}`, which marks the assistant's text for training, changes nothing here."""

    tags = {"generation"}  # noqa: RUF012 - how jinja wants it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _LeadThroughBudget(NodeTransformer):
    """Wraps what each loop runs over, and turns `~` into a call; templates can't shadow environment attributes."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja's name for it
        self.generic_visit(node)
        node.iter = _environment_call("loop_items", node.iter, line=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("concat_text", *node.nodes, line=node.lineno)


def _environment_call(name: str, *arguments: nodes.Node, line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None, lineno=line)


def tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers gives it to templates: no HTML escapes, other scripts as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format: str) -> str:  # noqa: A002 - the name templates use
    return datetime.now().strftime(format)


def raise_exception(message: str) -> None:
    raise RaisedByTemplate(message)


def check_size(value: Any) -> Any:
    """The value, unless it is larger than any chat needs."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise TemplateLimitError("the template makes a number of too many digits")
    if isinstance(value, str | list | tuple):
        _refuse_above(len(value))
    return value


def _length(value: object) -> int:
    """How much a value can multiply a text by."""
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, Sized) and not isinstance(value, Mapping) else 1


def _refuse_above(size: int) -> None:
    if size > MAX_SIZE:
        raise TemplateLimitError("the template makes a text or list that is too large")


def _check_power(base: object, exponent: object) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_BITS:
        raise TemplateLimitError("the template makes a number of too many digits")


def _check_format(text: str) -> None:
    if WIDE.search(text):
        raise TemplateLimitError(f"the template uses an extreme width in the format {text[:40]!r}")
