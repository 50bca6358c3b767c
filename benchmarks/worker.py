"""A peer in a process of its own, asked over JSON lines. It is stopped (SIGSTOP) whenever it isn't asked anything.

So a peer whose threads spin while idle takes nothing from the one that is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TIMEOUT = 900.0  # seconds for one answer
START = """
import ctypes, runpy, sys
ctypes.CDLL(None).prctl(1, 9)  # SIGKILL when the session dies: a stopped process would never see its input end
sys.path.append({root!r})
runpy.run_module({module!r}, run_name="__main__")
"""
"""The repository comes last on the path, so that what the environment has installed is what runs."""


class WorkerError(Exception):
    """A peer failed to start, load or run."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A peer and the weights it runs."""

    peer: str
    weights: str  # in the peer's own words: q8, Q8_0, F32, int4

    @property
    def name(self) -> str:
        return f"{self.peer} {self.weights}"


class Worker:
    """One process with one model. Answers come in order; errors raise WorkerError."""

    def __init__(self, entrant: Entrant, python: Path, *, threads: int, log: Path) -> None:
        self.entrant = entrant
        self._threads = threads
        self._log = log
        program = START.format(root=str(ROOT), module=f"benchmarks.workers.{entrant.peer}")
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), "-P", "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )

    def load(self, model: str) -> dict[str, Any]:
        """Facts that the peer tells about itself."""
        return self._ask({"op": "load", "model": model, "weights": self.entrant.weights, "threads": self._threads})

    def warm(self, case: dict[str, Any]) -> dict[str, Any]:
        return self._ask({"op": "warm", "case": case})

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        return self._ask({"op": "run", "case": case})

    def close(self) -> None:
        """End the process and whatever it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a request that a dead process never read
                    pipe.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._signal(signal.SIGCONT)
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            reply: dict[str, Any] = json.loads(self._read_line())
            self._signal(signal.SIGSTOP)
        except (OSError, ValueError) as error:
            raise WorkerError(f"{self.entrant.name} ended ({error}); see {self._log.name}") from error
        if "error" in reply:
            raise WorkerError(f"{self.entrant.name}: {reply['error']}")
        return reply

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def _read_line(self) -> bytes:
        """The next line; an empty one when the process has ended. WorkerError after the time limit."""
        assert self._process.stdout is not None
        end, line = time.monotonic() + TIMEOUT, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise WorkerError(f"{self.entrant.name} gave no answer in {TIMEOUT:.0f} s")
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    return b""
                line += part
        return line
