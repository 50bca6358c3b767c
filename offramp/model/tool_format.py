"""How models write calls of tools: one table, found by what a chat template itself writes for earlier calls.

Calls come one after another behind any text, and end the answer: `begin`, the calls with `between` among them, `end`.
A call is `head` with the function's name in it, the arguments as a JSON object or in tags, and `tail`. In tags each
argument is `TAG_OPEN`, its name, `TAG_VALUE`, the value, and `TAG_CLOSE`; a string stands there as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NAME = "\0"
"""Stands for the function's name in `ToolFormat.head`: a character that no name has."""

ARGS = "[ARGS]"
"""Between a name and its arguments, in one of the formats."""
PYTHON_TAG = "<|python_tag|>"
"""May stand before bare JSON."""
TAG_OPEN, TAG_VALUE, TAG_CLOSE = "<parameter=", ">\n", "\n</parameter>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way to write calls. Texts may hold special tokens of the model.

    `marker` is where text ends and calls begin. An empty one says that a call is recognized at the very start only.
    """

    name: str
    signs: tuple[str, ...]  # a template that has all of these writes calls so
    marker: str
    begin: str
    head: str
    tail: str
    between: str
    end: str
    tags: bool = False  # arguments stand in tags
    id_len: int = 24  # characters of a call's id that templates ask for

    def head_of(self, function: str) -> str:
        return self.head.replace(NAME, function)

    @property
    def bare(self) -> bool:
        """Nothing but the JSON itself tells a call from text."""
        return not self.marker

    @property
    def named(self) -> bool:
        """The function's name stands before its arguments, not with them in one object."""
        return ARGS in self.head

    @property
    def closing(self) -> str:
        """The tag behind each call, or behind a list of them, if any."""
        tag = self.end.strip().removeprefix("]")
        return tag if tag.startswith("<") else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Every fixed text, each with the special tokens it may hold."""
        return self.marker, self.begin, self.head, self.tail, self.between, self.end


JSON_HEAD = f'{{"name": "{NAME}", "arguments": '

TAGGED = ToolFormat(
    name="hermes",
    signs=("<tool_call>",),
    marker="<tool_call>",
    begin="<tool_call>\n",
    head=JSON_HEAD,
    tail="}",
    between="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
"""Qwen 2.5 and 3, Hermes, SmolLM2 and 3: a JSON object in tags."""

SPELLED = ToolFormat(
    name="qwen3-coder",
    signs=("<tool_call>", "<function=", "<parameter="),
    marker="<tool_call>",
    begin="<tool_call>\n",
    head=f"<function={NAME}>\n",
    tail="</function>",
    between="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
    tags=True,
)
"""Qwen3-Coder: every argument in tags of its own."""

LISTED = ToolFormat(
    name="mistral",
    signs=("[TOOL_CALLS]",),
    marker="[TOOL_CALLS]",
    begin="[TOOL_CALLS][",
    head=JSON_HEAD,
    tail="}",
    between=", ",
    end="]",
    id_len=9,
)
"""Mistral 7B v0.3 and Nemo: a JSON list."""

NAMED = ToolFormat(
    name="mistral-args",
    signs=("[TOOL_CALLS]", ARGS),
    marker="[TOOL_CALLS]",
    begin="[TOOL_CALLS]",
    head=f"{NAME}{ARGS}",
    tail="",
    between="[TOOL_CALLS]",
    end="",
    id_len=9,
)
"""Mistral Small 3.2 and later: the name, then the arguments."""

ENCLOSED = ToolFormat(
    name="phi4",
    signs=("<|tool|>",),
    marker="<|tool_call|>",
    begin="<|tool_call|>[",
    head=JSON_HEAD,
    tail="}",
    between=", ",
    end="]<|/tool_call|>",
)
"""Phi-4-mini: a JSON list between special tokens."""

PREFIXED = ToolFormat(
    name="phi4-functools",
    signs=("functools[",),
    marker="functools",
    begin="functools[",
    head=JSON_HEAD,
    tail="}",
    between=", ",
    end="]",
)
"""Phi-4-mini where its template asks for it: a JSON list behind a word."""

PARAMETERS = ToolFormat(
    name="llama3",
    signs=(PYTHON_TAG,),
    marker="",
    begin="",
    head=f'{{"name": "{NAME}", "parameters": ',
    tail="}",
    between="; ",
    end="",
)
"""Llama 3.1 to 3.3: a JSON object alone, perhaps behind <|python_tag|>."""

BARE = ToolFormat(name="json", signs=(), marker="", begin="", head=JSON_HEAD, tail="}", between="; ", end="")
"""Templates that are known for nothing else."""

FORMATS: tuple[ToolFormat, ...] = (NAMED, LISTED, SPELLED, TAGGED, PREFIXED, ENCLOSED, PARAMETERS, BARE)
"""The first whose signs are there."""

BY_TEMPLATE = "auto"
TOOL_CALL_PARSERS = (BY_TEMPLATE, *(each.name for each in FORMATS))
"""What may be asked for by name."""


def named_format(name: str) -> ToolFormat:
    """One of the table."""
    return next(each for each in FORMATS if each.name == name)


def tool_format_of(template: str) -> ToolFormat:
    """How a model with this chat template writes calls."""
    return next(each for each in FORMATS if all(sign in template for sign in each.signs))


def special_pieces(text: str, specials: Iterable[tuple[int, str]]) -> list[str | int]:
    """A fixed text as plain pieces, and ids where it has special tokens; the longest that begins first counts."""
    known: Sequence[tuple[int, str]] = sorted(specials, key=lambda pair: -len(pair[1]))
    pieces: list[str | int] = []
    plain = 0  # where the plain text that is not in `pieces` begins
    place = 0
    while place < len(text):
        found = next(((token, word) for token, word in known if word and text.startswith(word, place)), None)
        if found is None:
            place += 1
            continue
        pieces += [text[plain:place]] if place > plain else []
        pieces.append(found[0])
        place += len(found[1])
        plain = place
    return [*pieces, text[plain:]] if plain < len(text) else pieces


def shown_ids(format_: ToolFormat, specials: Iterable[tuple[int, str]]) -> frozenset[int]:
    """Special tokens that calls are recognized by, and that text must therefore show."""
    known = list(specials)
    texts = (*format_.texts, PYTHON_TAG) if format_.bare else format_.texts
    return frozenset(piece for text in texts for piece in special_pieces(text, known) if isinstance(piece, int))
