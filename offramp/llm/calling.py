"""How the calls of tools in a request's answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from offramp.llm.loading import LoadedModel
from offramp.llm.output import RequestOutput
from offramp.llm.tool_reader import ToolReader, read_whole
from offramp.model.tool_format import ToolFormat, shown_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """For one request."""

    layout: ToolFormat
    names: tuple[str, ...]  # of functions that may be called
    exact: bool  # a grammar sees that calls are written as the layout has them
    shown: frozenset[int]  # special tokens that belong to it

    def reader(self) -> ToolReader:
        """For one choice."""
        return ToolReader(self.layout, self.names, exact=self.exact)


def calling_of(loaded: LoadedModel, names: Iterable[str], *, exact: bool = False) -> Calling:
    """Calls of these functions, as the model writes them."""
    layout = loaded.template.tool_format
    shown = shown_ids(layout, loaded.tokenizer.special_texts.items())
    return Calling(layout=layout, names=tuple(names), exact=exact, shown=shown)


def function_names(tools: Sequence[Mapping[str, object]] | None) -> list[str]:
    """Of tools as OpenAI writes them, or of their functions alone; what has no name can't be called."""
    functions = [tool.get("function", tool) for tool in tools or () if isinstance(tool, Mapping)]
    names = [function.get("name") for function in functions if isinstance(function, Mapping)]
    return [name for name in names if isinstance(name, str)]


def with_calls(output: RequestOutput, calling: Calling) -> RequestOutput:
    """The same answer, the calls in each choice's text read."""
    choices = [
        replace(choice, tool_calls=tuple(read_whole(calling.reader(), choice.text)[1])) for choice in output.outputs
    ]
    return replace(output, outputs=choices)
