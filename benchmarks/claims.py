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

Value = object
"""What a line of results holds, or a part of it."""

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
    """A paragraph, an item or a row of a table; `line` is its first, `start` its place in the page."""

    line: int
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """As it is written, with its sign, commas and `%`."""

    start: int
    text: str


class ClaimError(Exception):
    """A comment that names nothing, more than one line, or other fields than there are numbers."""


@dataclass(frozen=True, slots=True)
class Link:
    """A comment, and the numbers between the one before and itself, as written, with where in the block they begin."""

    words: str
    numbers: tuple[Number, ...]


def blocks(text: str) -> Iterator[Block]:
    """Of a page, its code left out."""
    text = FENCE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    begin = 0
    for end, after in [*(match.span() for match in BLOCK.finditer(text)), (len(text), len(text))]:
        if text[begin:end].strip():
            yield Block(1 + text.count("\n", 0, begin), begin, text[begin:end])
        begin = after


def links(block: Block) -> Iterator[Link]:
    """Each comment of a block."""
    begin = 0
    for comment in COMMENT.finditer(block.text):
        found = NUMBER.finditer(block.text, begin, comment.start())
        yield Link(comment[1], tuple(Number(each.start(), _with_percent(block.text, each)) for each in found))
        begin = comment.end()


def unlinked(block: Block) -> list[str]:
    """Speeds with a number that no comment covers. Dated text is a log's, and needs none."""
    if DATED.search(block.text):
        return []
    covered = {number.start for link in links(block) for number in link.numbers[-len(asked(link.words)[2]) :]}
    text = COMMENT.sub(lambda comment: " " * len(comment[0]), block.text)
    return [
        " ".join(claim[0].split())
        for claim in SPEED.finditer(text)
        if any(claim[name] and claim.start(name) not in covered for name in ("low", "most", "median", "from", "to"))
    ]


def claims(link: Link, root: Path) -> Iterator[tuple[Number, float, str]]:
    """Each number that a comment covers, the value that it should be, and the field. Raises ClaimError."""
    name, chosen, fields = asked(link.words)
    if not fields or len(link.numbers) < len(fields):
        raise ClaimError(f"{len(fields)} fields beside {len(link.numbers)} numbers")
    path = root / (name if "/" in name else f"{RESULTS}/{name}.jsonl")
    if not path.is_file():
        raise ClaimError(f"no results {name}")
    found = [line for line in stored(path) if all(as_text(value_of(line, key)) == chosen[key] for key in chosen)]
    if len(found) != 1:
        raise ClaimError(f"{len(found)} lines with {chosen}")
    for number, field in zip(link.numbers[-len(fields) :], fields, strict=True):
        value = value_of(found[0], field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClaimError(f"{field} is {value!r}")
        yield number, value, field


def faults(link: Link, root: Path) -> list[str]:
    """What is wrong with a comment: it names nothing, or other numbers than those before it."""
    try:
        return [
            f"{field} is {value}, not {number.text}"
            for number, value, field in claims(link, root)
            if _plain(written(value, number.text)) != _plain(number.text)
        ]
    except ClaimError as error:
        return [str(error)]


def renewed(text: str, root: Path) -> str:
    """The page with each covered number as the results have it; where a comment is wrong nothing changes."""
    found = []
    for block in blocks(text):
        for link in links(block):
            try:
                told = [(block.start + number.start, number.text, value) for number, value, _ in claims(link, root)]
            except ClaimError:
                continue
            found += [each for each in told if _plain(written(each[2], each[1])) != _plain(each[1])]
    for start, before, value in sorted(found, reverse=True):
        text = text[:start] + written(value, before) + text[start + len(before) :]
    return text


def written(value: float, like: str) -> str:
    """The value as exactly as another number is written, with as much of sign, commas and `%`."""
    digits = like.rstrip("%").rstrip()
    decimals = len(digits.partition(".")[2])
    sign = "+" if like.startswith("+") else ""
    text = f"{100 * value if like.endswith('%') else value:{sign}{',' if ',' in like else ''}.{decimals}f}"
    return text + like[len(digits) :]


def stored(path: Path) -> list[Value]:
    """The lines of a file, or the one value of a file of JSON."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(each) for each in ([text] if path.suffix == ".json" else text.splitlines()) if each.strip()]


def asked(words: str) -> tuple[str, Mapping[str, str], Sequence[str]]:
    """A comment's file, pairs and fields."""
    name, *rest = shlex.split(words)
    pairs = dict(word.split("=", 1) for word in rest if "=" in word)
    return name, pairs, [word for word in rest if "=" not in word]


def value_of(line: Value, field: str) -> Value:
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


def as_text(value: Value) -> str:
    """As a comment's `key=value` spells it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> float:
    return float(text.rstrip("%").replace(",", ""))


def _with_percent(text: str, number: re.Match[str]) -> str:
    """The number, with its `%` if it has one, and what lies between."""
    percent = re.match(r"\s?%", text[number.end() :])
    return number[0] + (percent[0] if percent else "")
