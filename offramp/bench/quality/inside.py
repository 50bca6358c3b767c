"""What the child process of a sandbox does: gives up what it may do, runs one program, and says that it got through.

Run as a file by an isolated Python, with the program and the rest as one JSON object on standard input. It tells by
words of its caller's choice, which the program isn't told: `ready` before it runs, `passed` behind its last line.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from types import ModuleType

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NOBODY = 65534  # user and group
PROGRAMS = {"antigravity", "idlelib", "turtledemo"}
"""Modules that do something as soon as they are imported: open a browser, or windows."""


def main() -> None:
    told = int(sys.argv[1])  # a pipe's end
    os.set_inheritable(told, False)
    write = os.write  # the program may replace what is in the module
    asked = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    try:
        _cut_network()
        if os.geteuid() == 0:
            _become_nobody(asked["program"])
        _limit(**asked["limits"])
    except (OSError, ValueError) as error:
        write(told, str(error).encode())
        os._exit(1)
    write(told, asked["ready"].encode())
    _run(asked["program"])
    write(told, asked["passed"].encode())
    os._exit(0)


def _run(program: str) -> None:
    module = ModuleType("answer")  # not __main__: what is under such an `if` doesn't run
    sys.modules["answer"] = module
    exec(compile(program, "answer.py", "exec"), module.__dict__)


def _cut_network() -> None:
    """A network of its own, without a way out, where the kernel lets users have one."""
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    ctypes.CDLL(None).unshare(flags)  # a failure changes nothing


def _become_nobody(program: str) -> None:
    """Root is under no limit of processes and may write everywhere."""
    _import_early(program)
    os.chown(".", NOBODY, NOBODY)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _import_early(program: str) -> None:
    """Modules of Python that a program names, while Python's folder, which may be root's alone, can be read."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(program)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            for name in names:
                first, *within = name.split(".")
                if first in sys.stdlib_module_names - PROGRAMS and "__main__" not in within:
                    with suppress(Exception, SystemExit):  # the program will meet it again
                        importlib.import_module(name)


def _limit(cpu_seconds: int, wall_seconds: float, memory_bytes: int, file_bytes: int) -> None:
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: 0,  # no further process or thread
        resource.RLIMIT_CORE: 0,
    }
    for which, limit in limits.items():
        _, highest = resource.getrlimit(which)
        lower = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
        resource.setrlimit(which, (lower, lower))
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)  # ends it also when nobody is left who waits


if __name__ == "__main__":
    main()
