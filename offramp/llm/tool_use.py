"""What tools make of a request: what the template hears of them, what the answer may be, how it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offramp.core import Grammar, SamplingParams, StructuredOutputsParams
from offramp.errors import InvalidRequestError
from offramp.grammar import Function, Grammars, ToolAnswer
from offramp.llm.calling import Calling, calling_of
from offramp.llm.tool_choice import ToolChoice, chat_choice
from offramp.llm.tools import Tool, chat_tools
from offramp.model.tokenizer import Tokenizer
from offramp.model.tool_format import ToolFormat
from offramp.params import refused, shown

MAX_SCHEMAS = 1 << 16
"""Characters of all schemas that bind one answer."""
ANY_ARGUMENTS: Mapping[str, object] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What a request with tools comes to."""

    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel: bool

    @property
    def for_template(self) -> list[dict[str, object]] | None:
        """None where nothing may be called: then the model does not hear of tools."""
        return [tool.for_template() for tool in self.tools] if self.callable else None

    @property
    def callable(self) -> tuple[Tool, ...]:
        """What may be called."""
        if self.choice.mode == "none":
            return ()
        names = self.choice.names
        return tuple(tool for tool in self.tools if names is None or tool.name in names)

    @property
    def grammar_of(self) -> str | None:
        """The field that a grammar is needed for, if one is."""
        if not self.callable:
            return None
        if self.choice.mode == "required" or self.choice.names is not None:
            return "tool_choice"
        if any(tool.strict for tool in self.callable):
            return "strict tools"
        return None if self.parallel else "parallel_tool_calls"

    def calling(self, layout: ToolFormat, tokenizer: Tokenizer, params: SamplingParams) -> Calling | None:
        """How calls are read from the answer; None where there are none."""
        exact = self.grammar_of is not None or params.structured_outputs is not None
        functions = {tool.name: tool.schema for tool in self.callable}
        return calling_of(layout, tokenizer, functions, exact=exact) if functions else None

    def grammar(self, layout: ToolFormat, grammars: Grammars, params: SamplingParams) -> Grammar | None:
        """The grammar of the whole answer, text included; None where anything goes. Raises InvalidRequestError."""
        content = params.structured_outputs
        if not self.callable or (self.grammar_of is None and content is None):
            return None
        required = self.choice.mode == "required"
        answer = ToolAnswer(
            format=layout,
            functions=tuple(_function(tool, bound=required or tool.strict) for tool in self.callable),
            parallel=self.parallel and not self.choice.single,
            text=not required,
            content=None if content is None or required else _content_schema(content),
        )
        if sum(len(json.dumps(function.schema)) for function in answer.functions) > MAX_SCHEMAS:
            hint = "leave strict out, or give fewer tools"
            message = f"the tools' schemas have more than {MAX_SCHEMAS} characters together"
            raise InvalidRequestError(message, hint=hint, param="tools")
        return grammars.compile_calls(answer)


NO_TOOLS = ToolUse(tools=(), choice=ToolChoice(mode="none"), parallel=True)


def tool_use(tools: Sequence[object] | None, choice: object, parallel: object, *, bare: bool = False) -> ToolUse:
    """A chat's `tools`, `tool_choice` and `parallel_tool_calls`, checked. Raises InvalidRequestError.

    With `bare`, functions may stand alone among the tools.
    """
    if parallel is not None and not isinstance(parallel, bool):
        raise refused("parallel_tool_calls", parallel, "a boolean")
    known = chat_tools(tools, bare=bare)
    chosen = chat_choice(choice, bool(known))
    return checked_use(known, chosen, parallel)


def checked_use(known: tuple[Tool, ...], choice: ToolChoice, parallel: bool | None) -> ToolUse:
    """Put together; refuses names in the choice that no tool has."""
    for name in choice.names or ():
        if name not in {tool.name for tool in known}:
            hint = f"the tools are {', '.join(tool.name for tool in known)[:200]}" if known else "give tools"
            raise InvalidRequestError(f"there is no tool {shown(name)}", hint=hint, param=choice.place)
    return ToolUse(tools=known, choice=choice, parallel=parallel is not False)


def check_grammar_end(params: SamplingParams, grammar_of: str | None) -> None:
    """Refuse to go on behind the end of a grammar."""
    if grammar_of is not None and params.ignore_eos:
        hint = "leave ignore_eos out"
        raise InvalidRequestError(
            f"ignore_eos beside {grammar_of}: calls end the answer", hint=hint, param="ignore_eos"
        )


def _function(tool: Tool, *, bound: bool) -> Function:
    """`bound` arguments fit the tool's schema; others are any object."""
    if not bound:
        return Function(name=tool.name, schema=ANY_ARGUMENTS, place=tool.place)
    return Function(name=tool.name, schema=tool.schema, place=tool.place)


def _content_schema(content: StructuredOutputsParams) -> Mapping[str, object]:
    """Of an answer without calls."""
    if content.json_object:
        return ANY_ARGUMENTS
    if content.json is None or content.whitespace_pattern is not None:
        hint = "use response_format, or structured_outputs.json alone"
        raise InvalidRequestError(
            "beside tools an answer can be held to JSON only", hint=hint, param="structured_outputs"
        )
    if isinstance(content.json, str):
        value = json.loads(content.json)
        assert isinstance(value, dict)
        return value
    return content.json
