"""Runs a program that a model wrote, in a process of its own that may do little.

It keeps mistakes in: endless loops, growing memory, many processes, files all over the place. It is no security
boundary: a program made to break out can read what its user may read, and attack the kernel. Where the kernel refuses
users a network of their own, the program has that of the machine.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from offramp.errors import ResourceError

INSIDE = Path(__file__).parent / "inside.py"
SETTING_UP_SECONDS = 60
"""In which a child is ready, on a machine that others use too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one program. Bytes of memory are addresses, of files those of one file."""

    cpu_seconds: int = 5
    wall_seconds: float = 20.0
    memory_bytes: int = 512 * 2**20
    file_bytes: int = 2**20


DEFAULT_LIMITS = Limits()


def passes(program: str, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Whether a program runs to behind its last line: no exception, no exit before, within the limits.

    Its output goes nowhere. It has an empty folder, no environment and Python's own modules. Whatever it started is
    killed at the end. Raises ResourceError if this machine can't run programs so.
    """
    ready, passed = secrets.token_hex(16), secrets.token_hex(16)
    words = {"program": program, "limits": asdict(limits), "ready": ready, "passed": passed}
    try:
        said = _said(json.dumps(words).encode(), limits, len(ready), len(ready + passed))
    except OSError as error:
        raise _unable(str(error)) from error
    if not said.startswith(ready):
        raise _unable(said or "it ended early")
    return said == ready + passed


def _unable(why: str) -> ResourceError:
    hint = "leave out workloads with code, or run where a process may set its own limits"
    return ResourceError(f"no process for a program could be set up: {why}", hint=hint)


def _said(words: bytes, limits: Limits, ready_len: int, whole_len: int) -> str:
    """What the child told in its pipe until it ended, or its time did, or all was said."""
    folder = tempfile.TemporaryDirectory(prefix="offramp-program-", ignore_cleanup_errors=True)
    with folder as path, tempfile.TemporaryFile() as given:
        given.write(words)
        given.seek(0)
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as told:
            with os.fdopen(writing, "wb"):
                child = _start(path, given.fileno(), writing)
            try:
                said = _read(told, ready_len, SETTING_UP_SECONDS)
                if len(said) >= ready_len:
                    said += _read(told, whole_len - len(said), limits.wall_seconds)
            finally:
                os.killpg(child.pid, signal.SIGKILL)  # the child is not waited for yet, so the number is its own
                child.wait()
    return said.decode(errors="replace")


def _read(told: FileIO, most: int, seconds: float) -> bytes:
    """So many bytes, fewer where the end or the time comes first."""
    said, end = b"", time.monotonic() + seconds
    waiting = select.poll()
    waiting.register(told, select.POLLIN)
    while len(said) < most and waiting.poll(max(0.0, 1000 * (end - time.monotonic()))):
        piece = told.read(most - len(said))
        if not piece:
            break
        said += piece
    return said


def _start(folder: str, given: int, writing: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(INSIDE), str(writing)]
    return subprocess.Popen(
        command,
        stdin=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={"HOME": folder, "TMPDIR": folder},
        pass_fds=(writing,),
        start_new_session=True,  # a process group of its own
    )
