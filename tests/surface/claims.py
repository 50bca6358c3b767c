"""Numbers that pages claim, and the comments behind them that say which stored result they come from.

    code comes 1.5 times as fast <!-- result: speculation method=auto task=code ratio.median -->

A comment names a file of benchmarks/results (or, with a slash, one of JSON by its path from the repository's root),
`key=value` pairs that leave one of its lines, and a field for each of the numbers right before it. `a.b` is a key
within a value; quotes hold spaces together.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Json = object
"""What a line of results holds."""

RESULTS = "benchmarks/results"
COMMENT = re.compile(r"<!-- result: (.*?) -->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:\||[*-] |\d+\. |#))")
"""Where a block ends: at an empty line, and before a table's row, an item or a heading."""
DATED = re.compile(r"\b20\d\d-\d\d-\d\d\b")

NUMBER = re.compile(r"(?<![\w.,/-])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w|[.,:/-]\d)")
_N = NUMBER.pattern
SPEED = re.compile(
    rf"(?:(?P<low>{_N})\s+(?:to|and)\s+)?(?P<most>{_N})\s*(?:times\b|ms\b|µs\b|us\b|s\b|tokens/s|rows/s|GB/s|%)"
    rf"|(?P<median>{_N})\s+\((?P<from>{_N})\s+to\s+(?P<to>{_N})\b"
)
"""`1.6 times`, `1.2 to 2 times`, `5.3 ms`, `40 %` and the like; a median with its interval."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, an item or a row of a table; `line` is its first."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A comment, and the numbers right before it in its block: as written, with where they begin."""

    words: str
    numbers: tuple[tuple[int, str], ...]


def blocks(text: str) -> Iterator[Block]:
    """Of a page, without its code."""
    text = FENCE.sub(lambda code: "\n" * code[0].count("\n"), text)
    begin = 0
    for end, after in [*(match.span() for match in BLOCK.finditer(text)), (len(text), len(text))]:
        if text[begin:end].strip():
            yield Block(1 + text.count("\n", 0, begin), text[begin:end])
        begin = after


def links(block: Block) -> Iterator[Link]:
    """Each comment with the numbers between the one before and itself."""
    begin = 0
    for comment in COMMENT.finditer(block.text):
        written = list(NUMBER.finditer(block.text, begin, comment.start()))
        yield Link(comment[1], tuple((match.start(), _as_written(block.text, match)) for match in written))
        begin = comment.end()


def unlinked(block: Block) -> list[str]:
    """Speeds with a number that no comment covers. Dated text is a log's, and needs none."""
    if DATED.search(block.text):
        return []
    covered = {place for link in links(block) for place, _ in link.numbers[-len(asked(link.words)[2]) :]}
    text = COMMENT.sub(lambda comment: " " * len(comment[0]), block.text)
    return [
        " ".join(claim[0].split())
        for claim in SPEED.finditer(text)
        if any(claim[name] and claim.start(name) not in covered for name in ("low", "most", "median", "from", "to"))
    ]


def faults(link: Link, root: Path) -> list[str]:
    """What is wrong with a comment: it names nothing, or other numbers than those before it."""
    name, chosen, fields = asked(link.words)
    if not fields or len(link.numbers) < len(fields):
        return [f"{len(fields)} fields beside {len(link.numbers)} numbers"]
    path = root / (name if "/" in name else f"{RESULTS}/{name}.jsonl")
    if not path.is_file():
        return [f"no results {name}"]
    found = [line for line in stored(path) if all(as_text(value_of(line, key)) == chosen[key] for key in chosen)]
    if len(found) != 1:
        return [f"{len(found)} lines with {chosen}"]
    pairs = zip(link.numbers[-len(fields) :], fields, strict=True)
    return [wrong for (_, text), field in pairs if (wrong := difference(text, value_of(found[0], field), field))]


def stored(path: Path) -> list[Json]:
    """The lines of a file, or the one value of a file of JSON."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(each) for each in ([text] if path.suffix == ".json" else text.splitlines()) if each.strip()]


def asked(words: str) -> tuple[str, Mapping[str, str], Sequence[str]]:
    """A comment's file, pairs and fields."""
    name, *rest = shlex.split(words)
    pairs = dict(word.split("=", 1) for word in rest if "=" in word)
    return name, pairs, [word for word in rest if "=" not in word]


def value_of(line: Json, field: str) -> Json:
    """A value within a line; None where there is none. Keys may have dots of their own, lists have places."""
    if isinstance(line, list) and field.partition(".")[0].isdigit():
        place, _, rest = field.partition(".")
        inner = line[int(place)] if int(place) < len(line) else None
        return value_of(inner, rest) if rest else inner
    if not isinstance(line, dict):
        return None
    for key, value in line.items():
        if field == key:
            return value
        if field.startswith(f"{key}."):
            return value_of(value, field[len(key) + 1 :])
    return None


def difference(text: str, value: Json, field: str) -> str:
    """Empty where the number, as exactly as it is written, is the value; with a `%` a hundred times of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{field} is {value!r}"
    digits = text.rstrip("%").strip().replace(",", "")
    decimals = len(digits.partition(".")[2])
    rounded = f"{100 * value if text.endswith('%') else value:.{decimals}f}"
    return "" if float(rounded) == float(digits) else f"{field} is {value}, not {text}"


def as_text(value: Json) -> str:
    """As a comment's `key=value` spells it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _as_written(text: str, number: re.Match[str]) -> str:
    """The number, with its `%` if it has one."""
    return number[0] + ("%" if re.match(r"\s?%", text[number.end() :]) else "")
