"""How the calls of tools in a request's answers are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from offramp.llm.output import RequestOutput
from offramp.llm.tool_reader import ToolReader, read_whole
from offramp.model.tokenizer import Tokenizer
from offramp.model.tool_format import ToolFormat, shown_ids

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """For one request."""

    layout: ToolFormat
    functions: Mapping[str, Schema]  # that may be called, with the schemas of their arguments
    exact: bool  # a grammar sees that calls are written as the layout has them
    shown: frozenset[int]  # special tokens that belong to it

    def reader(self) -> ToolReader:
        """For one choice."""
        return ToolReader(self.layout, self.functions, exact=self.exact)


def calling_of(
    layout: ToolFormat, tokenizer: Tokenizer, functions: Mapping[str, Schema], *, exact: bool = False
) -> Calling:
    """Calls of these functions, as the model writes them."""
    shown = shown_ids(layout, tokenizer.special_texts.items())
    return Calling(layout=layout, functions=functions, exact=exact, shown=shown)


def with_calls(output: RequestOutput, calling: Calling) -> RequestOutput:
    """The same answer, the calls in each choice's text read."""
    choices = [
        replace(choice, tool_calls=tuple(read_whole(calling.reader(), choice.text)[1])) for choice in output.outputs
    ]
    return replace(output, outputs=choices)
