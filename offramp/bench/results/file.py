"""A run's lines on disk: appended turn by turn, read back strictly, gone on with after an interrupt."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from offramp.bench.results.check import check_line
from offramp.bench.results.decode import decoded
from offramp.bench.results.lines import CostLine, FailureLine, ItemLine, Line, RunLine, ScoreLine, TurnLine
from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import shown

KINDS: Mapping[str, type[Line]] = {
    "run": RunLine,
    "turn": TurnLine,
    "item": ItemLine,
    "score": ScoreLine,
    "failure": FailureLine,
    "cost": CostLine,
}
SAME = ("source_hash", "methods", "exactness", "workloads", "streams", "max_tokens")
"""Facts of a run that all its sittings share. Rounds may become more."""
SAME_PLACE = ("offramp", "cpu", "threads", "kernels", "packs")
"""The same, of what `provenance` has."""

Key = tuple[str, str, int, int]
"""A turn: workload, method, streams, round."""

HINT = "name a file of `offramp bench run`"
OTHER = "write to another file, or delete this one"


def read_lines(path: Path) -> list[Line]:
    """All lines of finished turns, the run first, once, with the most rounds of its sittings.

    What an interrupt left of a turn is not told. Raises InvalidRequestError naming the line, or the file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"can't read {path}: {error.strerror}", hint=HINT) from error
    lines = _Reader(path).read(data).lines
    if not lines:
        raise InvalidRequestError(f"{path} holds no results", hint=HINT)
    return lines


class ResultFile:
    """The file of a run that is under way. Nobody else writes it meanwhile. Close it.

    One that is there already is gone on with, if it is of the same run; InvalidRequestError otherwise. `lines` are
    those that it has.
    """

    def __init__(self, path: Path, run: RunLine) -> None:
        self.path = path
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise InvalidRequestError(f"can't write {path}: {error.strerror}", hint="name another file") from error
        try:
            self._lock()
            found = _Reader(path).read(_whole(self._handle))
            self.lines = found.lines
            self._size = found.settled
            self._run = _stored(run)
            self._begun = False  # this sitting's first line is written with what follows it
            if self.lines:
                self._go_on(self._run)
            os.ftruncate(self._handle, self._size)
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> set[Key]:
        """Turns that it has."""
        return {_key(line) for line in self.lines if isinstance(line, TurnLine)}

    def append(self, *lines: Line) -> None:
        """Write them, whole or not at all. ResourceError where there is no room."""
        if not lines:
            return
        written = [*([] if self._begun else [self._run]), *lines]
        data = b"".join(_encoded(line) for line in written)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._handle, data[done:], self._size + done)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            hint = "make room and give the same command again: it goes on where it stopped"
            raise ResourceError(f"can't write {self.path}: {error.strerror}", hint=hint) from error
        self._size += len(data)
        self.lines += written if not self.lines else lines
        self._begun = True

    def close(self) -> None:
        """Let others write it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._handle).st_mode):
            raise InvalidRequestError(f"{self.path} is no regular file", hint="name another file")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "wait until that has ended, or write to another file"
            raise ResourceError(f"{self.path} is being written by another run", hint=hint) from error

    def _go_on(self, run: RunLine) -> None:
        """Refuse another run's file; else it has as many rounds as the longest of both."""
        before = self.lines[0]
        assert isinstance(before, RunLine), "read so"
        different = _different(before, run)
        if different:
            raise InvalidRequestError(f"{self.path} holds another run: {different}", hint=OTHER, param="output")
        self.lines[0] = replace(before, rounds=max(before.rounds, run.rounds))


@dataclass(slots=True)
class _Reader:
    """Reads lines one after the other; those of a turn count once the turn has ended."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    settled: int = 0  # bytes, up to where nothing is open
    _open: list[ItemLine | FailureLine] = field(default_factory=list)  # of the turn that goes on
    _keys: set[Key] = field(default_factory=set)
    _number: int = 0

    def read(self, data: bytes) -> Self:
        """A last line that has no end was interrupted, and is left out."""
        at = 0
        for text in data.split(b"\n")[:-1]:
            self._number += 1
            at += len(text) + 1
            self._take(self._parsed(text))
            if not self._open:
                self.settled = at
        return self

    def _parsed(self, text: bytes) -> Line:
        try:
            fields = json.loads(text)
            if not isinstance(fields, dict) or fields.get("kind") not in KINDS:
                raise ValueError(f"{shown(fields)} has no kind of a line of results")
            line = decoded(KINDS[fields["kind"]], fields)
            check_line(line)
            return line
        except (ValueError, RecursionError, TypeError) as error:
            raise self._refused(str(error)) from error

    def _take(self, line: Line) -> None:
        if not self.lines or isinstance(line, RunLine):
            self._take_run(line)
        elif isinstance(line, ItemLine) or (isinstance(line, FailureLine) and line.item is not None):
            self._take_item(line)
        else:
            self._check(line)
            if isinstance(line, TurnLine):
                self.lines += [each for each in self._open if _key(each) == _key(line)]
                self._keys.add(_key(line))
            self._open.clear()
            self.lines.append(line)

    def _take_run(self, line: Line) -> None:
        if not isinstance(line, RunLine):
            raise InvalidRequestError(f"{self.path} holds no results: its first line is of another kind", hint=HINT)
        self._open.clear()
        if not self.lines:
            self.lines.append(line)
            return
        first = self.lines[0]
        assert isinstance(first, RunLine), "read so"
        if different := _different(first, line):
            raise self._refused(f"another run begins: {different}")
        self.lines[0] = replace(first, rounds=max(first.rounds, line.rounds))

    def _take_item(self, line: ItemLine | FailureLine) -> None:
        self._check(line)
        self._open = [each for each in self._open if _key(each) == _key(line)]  # others were interrupted
        if line.item in [each.item for each in self._open]:
            raise self._refused(f"{shown(line.item)} comes twice in a turn")
        self._open.append(line)

    def _check(self, line: Line) -> None:
        """It belongs to the run, and its turn did not come before."""
        run = self.lines[0]
        assert isinstance(run, RunLine), "read so"
        for name, known in (("workload", run.workloads), ("method", run.methods)):
            value = getattr(line, name, None)
            if value is not None and value not in known:
                raise self._refused(f"the run has no {name} {shown(value)}")
        if isinstance(line, TurnLine | ItemLine | FailureLine) and _key(line) in self._keys:
            raise self._refused("its turn is there already")

    def _refused(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self.path}, line {self._number}: {why}", hint=HINT)


def _key(line: TurnLine | ItemLine | FailureLine) -> Key:
    return line.workload, line.method, line.streams, line.round


def _different(before: RunLine, now: RunLine) -> str:
    """What facts of two sittings differ in, in words; empty where they go together."""
    facts = [name for name in SAME if getattr(before, name) != getattr(now, name)]
    places = [
        f"{name} was {shown(before.provenance.get(name))} and is {shown(now.provenance.get(name))}"
        for name in SAME_PLACE
        if before.provenance.get(name) != now.provenance.get(name)
    ]
    return "; ".join([*([f"it has other {', '.join(facts)}"] if facts else []), *places])


def _stored(run: RunLine) -> RunLine:
    """As it is read back."""
    stored: RunLine = decoded(RunLine, json.loads(_encoded(run)))
    return stored


def _encoded(line: Line) -> bytes:
    fields = asdict(line)
    fields = {"kind": fields.pop("kind"), **fields}
    return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _whole(handle: int) -> bytes:
    size, parts, at = os.fstat(handle).st_size, [], 0
    while at < size and (part := os.pread(handle, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
