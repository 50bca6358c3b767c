"""The parser whose training is kept: its adapter, put back into the default model's weights."""

from __future__ import annotations

from pathlib import Path

from benchmarks.session import note
from benchmarks.worker import ROOT
from offramp.prompt_lines import file_hash
from offramp.train.extra import ready_torch

ADAPTER = Path(__file__).with_name("parser") / "adapter.safetensors"


def kept_parser(model: str) -> Path:
    """Its model directory, below the results, written when it is not there yet. Raises OfframpError without torch."""
    directory = ROOT / "benchmarks" / "results" / f"parser-{file_hash(ADAPTER)[:12]}"
    if not directory.exists():
        ready_torch()
        from offramp.train.layerskip.run import rebuild

        note(f"putting the parser together in {directory.name}")
        rebuild(model, ADAPTER, directory)
    return directory
