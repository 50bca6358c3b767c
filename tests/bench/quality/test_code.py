"""Right programs pass, wrong ones don't, and what goes astray is kept in and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offramp.bench.quality import METRICS, sandbox
from offramp.bench.quality.code import function_of, whole_program
from offramp.bench.quality.sandbox import Limits, passes
from offramp.bench.workloads.item import CodeTest, Item
from offramp.errors import ResourceError

DOUBLE = CodeTest(
    before='from typing import List\n\n\ndef double(x: int) -> int:\n    """Twice x."""\n',
    after="def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    entry_point="double",
)
LONG = 600
"""Seconds in which another limit ends a program on the slowest machine."""
LITTLE_TIME = Limits(wall_seconds=0.3)
LITTLE_CPU = Limits(cpu_seconds=1, wall_seconds=LONG)
LITTLE_MEMORY = Limits(memory_bytes=128 * 2**20, wall_seconds=LONG)
LIMITS = {"endless loop": LITTLE_CPU, "endless sleep": LITTLE_TIME, "deaf sleep": LITTLE_TIME}
UNSHARE = "import ctypes, os; print(ctypes.CDLL(None).unshare(0x40000000 if os.geteuid() == 0 else 0x50000000))"


def judged(answer: str) -> float:
    return METRICS["pass_at_1"](Item(name="x", task="code", content=DOUBLE.before, code=DOUBLE, raw=True), answer)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("    return 2 * x\n", 1.0),
        ("    import fractions\n    return int(fractions.Fraction(2) * x)\n", 1.0),
        ("    return 2 * x\n\n\nprint(double(3\n", 1.0),  # what follows the function is cut
        ("    return x ** 2\n", 0.0),
        ("    return 2 * y\n", 0.0),
        ("return 2 * x\n", 0.0),
        ("", 0.0),
        ("    import sys; sys.exit(0)\n", 0.0),
        ("    import os; os._exit(0)\n", 0.0),
        ("    import os; os.write(3, b'passed'); os.kill(os.getpid(), 9)\n", 0.0),
        ("    print('passed'); raise SystemExit\n", 0.0),
    ],
)
def test_a_program_passes_if_its_tests_run_through(answer: str, value: float) -> None:
    assert judged(answer) == value


@pytest.mark.parametrize(
    ("answer", "function"),
    [
        ("    return 1\n\ndef other():\n    pass\n", "    return 1\n"),
        ("    a = [\n1,\n]\n    return a", "    a = ["),
        ("    a = f(\n        1,\n)\n    return a", "    a = f(\n        1,\n)\n    return a"),
        ("    return 1\n# and", "    return 1"),
        ("    a = 1\r\n\r\n    return a\r\nprint()", "    a = 1\r\n\r\n    return a\r"),
        ("x = 1", "x = 1"),
    ],
)
def test_a_function_ends_where_a_line_begins_at_the_margin(answer: str, function: str) -> None:
    assert function_of(answer) == function


def test_the_program_checks_its_entry_point() -> None:
    program = whole_program(DOUBLE, "    return 2 * x\nclass A: ...")
    assert program.startswith(DOUBLE.before + "    return 2 * x\n")
    assert program.endswith("\ncheck(double)\n")
    assert "class A" not in program


ASTRAY = {
    "endless loop": "while True: pass",
    "endless sleep": "import time\ntime.sleep(1000)",
    "deaf sleep": "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(1000)",
    "memory": "x = bytearray(1 << 30)",
    "growing memory": "x = [0]\nwhile True: x += x",
    "recursion": "def f(): return f()\nf()",
    "crash": "import ctypes\nctypes.string_at(0)",
    "fork": "import os\nos.fork()",
    "fork bomb": "import os\nwhile True:\n    os.fork()",
    "thread": "import threading\nthreading.Thread(target=print).start()",
    "program": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])",
    "huge file": "with open('f', 'wb') as f:\n    for _ in range(3): f.write(bytes(1 << 20))",
    "no syntax": "def f(:",
    "half a character": "x = '\ud83d'",
    "NUL": "x = 1\0",
}


@pytest.mark.parametrize("case", ASTRAY)
def test_what_goes_astray_does_not_pass(case: str) -> None:
    begun = time.monotonic()
    assert not passes(ASTRAY[case], LIMITS.get(case, LITTLE_MEMORY))
    assert time.monotonic() - begun < LONG, "its own limit ends it"


def test_huge_output_goes_nowhere() -> None:
    assert passes("for _ in range(200): print('x' * 100_000)\nimport sys\nsys.stderr.write('y' * 1_000_000)")


def test_a_program_has_an_empty_folder_and_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "ours.py").write_text("")
    program = """
        import os, sys, tempfile
        assert os.listdir() == []
        assert set(os.environ) <= {"HOME", "TMPDIR", "LC_CTYPE"}, os.environ
        assert tempfile.gettempdir() == os.getcwd() == os.environ["HOME"]
        assert sys.stdin.read() == os.read(0, 9).decode() == ""
        assert __name__ != "__main__"
        try: import ours
        except ImportError: pass
        else: raise AssertionError
        try: import numpy
        except ImportError: pass
        else: raise AssertionError
        with open("own", "w") as file: file.write("x")
        os.remove("own")
        """
    assert passes("\n".join(line[8:] for line in program.splitlines()))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's program may change that user's files")
def test_root_s_files_are_out_of_reach(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert not passes(f"import os\nos.remove({str(file)!r})")
    assert not passes(f"open({str(file)!r}, 'w')")
    assert file.read_text() == "x"


@pytest.mark.parametrize("module", ["unittest.__main__", "ensurepip.__main__", "idlelib.idle", "antigravity"])
def test_a_module_that_is_a_program_is_no_fault_of_the_sandbox(module: str) -> None:
    assert passes(f"def f():\n    import {module}")


def test_nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    before = len(os.listdir("/proc/self/fd"))
    assert passes("import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.chmod('a', 0)")
    assert not passes("import time\ntime.sleep(1000)", LITTLE_TIME)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_network_is_cut_where_the_kernel_lets_us() -> None:
    probe = subprocess.run([sys.executable, "-c", UNSHARE], capture_output=True, text=True, check=True)
    if probe.stdout.strip() != "0":
        pytest.skip("no network of one's own here")
    lines = "open('/proc/net/dev').read().splitlines()[2:]"
    assert passes(f"names = [line.split(':')[0].strip() for line in {lines}]\nassert names == ['lo'], names")


def test_a_sandbox_that_can_t_be_set_up_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "INSIDE", tmp_path / "inside.py")
    with pytest.raises(ResourceError, match="could be set up: it ended early"):
        passes("")
    sandbox.INSIDE.write_text("import os, sys\nos.write(int(sys.argv[1]), b'no such user')\n")
    with pytest.raises(ResourceError, match="could be set up: no such user"):
        passes("")
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with pytest.raises(ResourceError, match=r"could be set up: .*No such file"):
        passes("")
