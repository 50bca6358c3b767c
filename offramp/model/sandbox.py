"""Jinja for templates that come with a model: what transformers offers them, no access to anything, bounded work.

A template can't reach attributes that matter (jinja's immutable sandbox, and a list of the methods and filters that
chats need). All it makes is counted and limited (template_limits.py), so that a hostile template soon fails with
TemplateLimitError. One operation, once begun, is not interrupted: it takes time in proportion to the limit.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from offramp.model.template_limits import Budget
from offramp.model.template_names import FILTERS, METHODS, PICKING
from offramp.model.template_nodes import lead_through_environment

RECURSION_STEPS = 1000  # of an item of a loop that calls itself
SCOPES = ("_loop_vars", "_block_vars")  # arguments that jinja adds to calls


class RaisedByTemplate(jinja2.TemplateRuntimeError):
    """The template called raise_exception: it refuses these messages."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template; each thread that renders it has a budget of its own."""

    intercepted_binops = frozenset(["+", "-", "*", "**", "%"])

    def __init__(self) -> None:
        extensions = [GenerationBlock, "jinja2.ext.loopcontrols"]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=self.text)
        self._budgets = threading.local()
        known = {name: self.filters[name] for name in FILTERS} | {"tojson": self.tojson}
        self.filters = {name: self._counted_filter(name, function) for name, function in known.items()}
        self.tests = {name: self._counted_test(function) for name, function in self.tests.items()}
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": OpaqueNamespace,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    @property
    def budget(self) -> Budget:
        """Of the rendering that goes on in this thread."""
        budget: Budget = self._budgets.current
        return budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._budgets.current = budget

    # What compiled templates call.

    def text(self, value: Any) -> Any:
        """What `{{ }}` writes."""
        self.budget.spend()
        return self.budget.make(value if isinstance(value, str) else str(value))

    def concat(self, pieces: Iterable[str]) -> str:
        """The text of a block, a macro or the operator `~`."""
        kept, size = [], 0
        for piece in pieces:
            kept.append(piece)
            size += len(piece)
            self.budget.refuse_above(size)
        text: str = self.budget.make("".join(kept))
        return text

    def concat_values(self, *values: object) -> str:
        """The operator `~`."""
        return self.concat(map(self.text, values))

    def loop_items(self, items: Iterable[Any], steps: int) -> Iterator[Any]:
        """What a loop runs over, whose body has so many nodes."""
        return self.budget.loop(items, steps)

    def step(self, value: Any) -> Any:
        """An operand, as it is."""
        self.budget.spend()
        return value

    def tojson(
        self,
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as transformers gives it to templates: no HTML escapes, other scripts as they are."""
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        return self.concat(encoder.iterencode(value))

    def made(self, value: Any) -> Any:
        """A list, tuple or mapping that the template writes out."""
        self.budget.spend()
        return self.budget.check(value)

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """A slice."""
        self.budget.spend()
        return self.budget.make(value[start:stop:step])

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.budget.spend()
        return super().getitem(obj, argument)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if getattr(function, "__self__", None) is self:
            return function(*args)  # one of the above
        values = [*args, *(value for name, value in kwargs.items() if name not in SCOPES)]
        if isinstance(function, LoopContext):
            args = (self.loop_items(args[0], RECURSION_STEPS), *args[1:])
        if isinstance(function, Macro):
            self.budget.check(values)  # it may use them as a list
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)  # the sandbox wraps str.format
        self.budget.before_call(getattr(function, "__name__", ""), [owner] * isinstance(owner, str) + values)
        return self.budget.check(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.spend()
        self.budget.before_operator(operator, left, right)
        return self.budget.check(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kinds, names in METHODS:
            if isinstance(obj, kinds):
                return attr in names
        return bool(super().is_safe_attribute(obj, attr, value))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return lead_through_environment(super()._parse(source, name, filename))

    def _counted_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps jinja's marks of what the filter wants passed
        def counted(*args: Any, **kwargs: Any) -> Any:
            values = [*args, *kwargs.values()]
            if isinstance(values[0], Context | EvalContext | jinja2.Environment):
                del values[0]
            self.budget.before_call(f"|{name}", values)
            result = function(*args, **kwargs)
            if isinstance(result, LoopContext):
                return result  # an iterator, but not to be used up
            return self.budget.make(result) if name in PICKING else self.budget.check(result)

        return counted

    def _counted_test(self, function: Any) -> Callable[..., Any]:
        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.budget.spend()
            return function(*args, **kwargs)

        return counted


class OpaqueNamespace(Namespace):
    """A namespace that shows nothing of what it holds, which could be itself."""

    def __repr__(self) -> str:
        return "<namespace>"


class GenerationBlock(Extension):
    """`{% generation %}`, which marks the assistant's text for training, changes nothing here."""

    tags = {"generation"}  # noqa: RUF012 - how jinja wants it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def strftime_now(format: str) -> str:  # noqa: A002 - the name templates use
    return datetime.now().strftime(format)


def raise_exception(message: str) -> None:
    raise RaisedByTemplate(message)
