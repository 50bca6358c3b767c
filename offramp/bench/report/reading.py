"""Files of results as the page takes them: runs of `offramp bench run`, and comparisons with other engines."""

from __future__ import annotations

import json
from pathlib import Path

from offramp.bench.report.given import Given
from offramp.bench.report.peers import Peers, is_peers_line, peers_of
from offramp.bench.results.file import read_lines
from offramp.bench.results.lines import RunLine
from offramp.bench.results.summary import cells
from offramp.errors import InvalidRequestError

HINT = "name files that `offramp bench run` wrote"
MOST_BYTES = 1 << 30


def read_results(path: Path) -> Given | Peers:
    """One file. Raises InvalidRequestError, naming the file, for what is missing, empty, damaged or something else."""
    first = _first_line(path)
    if is_peers_line(first):
        return _peers(path)
    lines = read_lines(path)
    run = lines[0]
    assert isinstance(run, RunLine), "results are read so"
    return Given(name=path.name, run=run, lines=lines, cells=cells(lines))


def _first_line(path: Path) -> dict[str, object]:
    """The object in the first line."""
    try:
        if path.exists() and not path.is_file():
            raise InvalidRequestError(f"{path} is no regular file", hint=HINT)
        if path.stat().st_size > MOST_BYTES:
            raise InvalidRequestError(f"{path} is longer than {MOST_BYTES} bytes", hint=HINT)
        with path.open("rb") as file:
            text = file.readline(MOST_BYTES)
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror}", hint=HINT) from error
    if not text.strip():
        raise InvalidRequestError(f"{path} is empty, or begins with an empty line", hint=HINT)
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path}, line 1 is not JSON: {error}", hint=HINT) from error
    if not isinstance(entry, dict):
        raise InvalidRequestError(f"{path}, line 1 is not an object", hint=HINT)
    return entry


def _peers(path: Path) -> Peers:
    entries = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"{path}, line {number} is not JSON: {error}", hint=HINT) from error
        if not (isinstance(entry, dict) and is_peers_line(entry)):
            raise InvalidRequestError(f"{path}, line {number} is no line of a comparison", hint=HINT)
        entries.append(entry)
    try:
        return peers_of(path.name, entries)
    except ValueError as error:
        raise InvalidRequestError(f"{path}: {error}", hint=HINT) from error
