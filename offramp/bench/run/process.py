"""A method in a process of its own: its peak memory is its own, and so is its crash."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from offramp.bench.results.decode import decoded
from offramp.bench.results.lines import PLAIN, CostLine
from offramp.bench.run.method import Method
from offramp.bench.run.turn import Answered, Facts, Failed, Fault, Hear, Heard, Scored, Taken, Turn
from offramp.bench.workloads.item import Item
from offramp.errors import OfframpError

LOAD_SECONDS = 3600.0
"""To fetch, prepare and load a model."""
SILENCE_SECONDS = 300.0
"""Without a word from a turn, which speaks every second."""
CLOSE_SECONDS = 0.5
"""Between the end of a process's output and its own end."""
LONGEST_LINE = 1 << 26
TAIL_LINES, TAIL_BYTES = 3, 4096
"""Of a process's stderr, in errors."""

ROOT = Path(__file__).resolve().parents[3]
START = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("offramp.bench.run.worker", run_name="__main__")
"""
WORKER = (sys.executable, "-P", "-c", START, str(ROOT))
"""The package as it is installed, or else where this one lies; never what lies in the folder that we are in."""

Answer = tuple[str, Any]
"""A kind of answer, and its fields."""


class WorkerError(OfframpError):
    """A method's process failed to start, to load or to run, or is silent."""


class MethodProcess:
    """Starts and loads in the `with` statement, and is gone after it, whatever happened. Errors raise WorkerError.

    After one the process has ended. It has a session of its own, so that Ctrl-C reaches us alone, and ends by itself
    when we do.
    """

    def __init__(
        self,
        method: Method,
        model: str,
        *,
        command: Sequence[str] = WORKER,
        load_seconds: float = LOAD_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.method = method
        self._model = model
        self._command = command
        self._load_seconds = load_seconds
        self._silence_seconds = silence_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None  # its stderr
        self._facts: Facts | None = None
        self._rest = b""  # of what was read, behind the latest line

    @property
    def facts(self) -> Facts:
        """What it told about the model."""
        assert self._facts is not None, "not loaded"
        return self._facts

    def start(self) -> Facts:
        """Start the process and load the model."""
        assert self._process is None, "started before"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process
        try:
            self._process = subprocess.Popen(
                list(self._command),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise self._failure(f"can't be started: {error}") from error
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        flags = {name: value for name, value in asdict(self.method.flags).items() if value is not None}
        with self._asked({"load": {"model": self._model, "flags": flags}}, self._load_seconds) as answers:
            self._facts = decoded(Facts, self._only(next(answers), "facts"))
        return self._facts

    def turn(
        self,
        items: Sequence[Item],
        *,
        streams: int = 1,
        max_tokens: int,
        texts: bool = False,
        ignore_eos: bool = False,
        hear: Hear = lambda heard: None,
    ) -> Turn:
        """Answer all items, so many at a time, in a fresh engine. `texts`: the answers' texts come too."""
        asked = {"streams": streams, "max_tokens": max_tokens, "texts": texts, "ignore_eos": ignore_eos}
        answered: list[Answered] = []
        failed: list[Failed] = []
        turn = {"items": [asdict(item) for item in items], **asked}
        with self._asked({"turn": turn}, self._silence_seconds) as answers:
            for kind, fields in answers:
                match kind:
                    case "heard":
                        hear(decoded(Heard, fields))
                    case "answered":
                        answered.append(decoded(Answered, fields))
                    case "failed":
                        failed.append(decoded(Failed, fields))
                    case _:
                        taken = decoded(Taken, self._only((kind, fields), "taken"))
                        break
        names = sorted([each.item for each in answered] + [each.item for each in failed])
        if names != sorted(item.name for item in items):
            raise self._failure("answered other items than it was asked")
        return Turn(taken=taken, answers=tuple(answered), failed=tuple(failed))

    def costs(self, *, row_counts: Sequence[int], context: int) -> list[CostLine]:
        """Measure steps of so many rows. None where K/V memory is too small."""
        costs: list[CostLine] = []
        asked = {"row_counts": list(row_counts), "context": context}
        with self._asked({"costs": asked}, self._load_seconds) as answers:
            for kind, fields in answers:
                if kind != "cost":
                    self._only((kind, fields), "end")
                    break
                costs.append(decoded(CostLine, fields))
        return costs

    def perplexities(self, items: Sequence[Item]) -> dict[str, float]:
        """Of the items' references under the method's weights; of those that have one, and room for it."""
        scored: dict[str, float] = {}
        asked = {"items": [asdict(item) for item in items]}
        with self._asked({"perplexities": asked}, self._load_seconds) as answers:
            for kind, fields in answers:
                if kind != "scored":
                    self._only((kind, fields), "end")
                    break
                each = decoded(Scored, fields)
                scored[each.item] = each.value
        return scored

    def close(self) -> None:
        """End the process, and what it started. Does nothing the second time."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if self._errors is not None:
            self._errors.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _asked(self, request: dict[str, object], patience: float) -> Iterator[Iterator[Answer]]:
        """Send a request; its answers. Whatever goes wrong before the last one was taken ends the process."""
        try:
            self._send(json.dumps(request).encode() + b"\n", patience)
            yield self._answers(patience)
        except ValueError as error:
            failure = self._failure(f"told what nobody understands: {error}")
            self.close()
            raise failure from error
        except BaseException:  # an interrupt too: what it goes on to tell belongs to no later request
            self.close()
            raise

    def _send(self, data: bytes, patience: float) -> None:
        """Write it all, as fast as the process reads."""
        assert self._process is not None, "not started"
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.closed:
            raise WorkerError(f"method {self.method.name}: its process has ended", hint="start another")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_WRITE)
            while data:
                if not selector.select(patience):
                    raise self._failure(f"read nothing for {patience:g} s")
                try:
                    data = data[os.write(pipe.fileno(), data) :]
                except OSError as error:
                    raise self._failure(self._end()) from error

    def _answers(self, patience: float) -> Iterator[Answer]:
        while True:
            answer = json.loads(self._line(patience))
            if not isinstance(answer, dict) or len(answer) != 1:
                raise ValueError(f"{str(answer)[:80]!r} is no answer")
            yield next(iter(answer.items()))

    def _only(self, answer: Answer, wanted: str) -> Any:
        """The fields of the one kind of answer that may come now. An error is raised as one."""
        kind, fields = answer
        if kind == "error":
            fault = decoded(Fault, fields)
            raise WorkerError(f"method {self.method.name}: {fault.message}", hint=fault.hint)
        if kind != wanted:
            raise ValueError(f"{kind!r} in the place of {wanted!r}")
        return fields

    def _line(self, patience: float) -> bytes:
        """The next line of its output."""
        assert self._process is not None
        assert self._process.stdout is not None
        until, handle = time.monotonic() + patience, self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if len(self._rest) > LONGEST_LINE:
                    raise ValueError("a line without end")
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise self._failure(f"said nothing for {patience:g} s")
                part = os.read(handle, 1 << 16)
                if not part:
                    raise self._failure(self._end())
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self) -> str:
        """How the process ended, in words."""
        assert self._process is not None
        try:
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _failure(self, what: str) -> WorkerError:
        """An error, with what the process said last on its stderr."""
        tail = self._tail()
        other = "" if self.method.name == PLAIN else ", or leave this method out"
        hint = f"it said: {tail}" if tail else f"free memory if it was killed{other}"
        return WorkerError(f"method {self.method.name}: its process {what}", hint=hint)

    def _tail(self) -> str:
        if self._errors is None or self._errors.closed:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode("utf-8", "replace")
        return " / ".join(line.strip() for line in text.splitlines()[-TAIL_LINES:] if line.strip())
