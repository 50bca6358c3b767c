"""f32 logits of tiny random Llama models against what transformers answered (recorded by record.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from offramp.core import PAGE_SIZE
from offramp.model.config_hf import config_from_hf
from offramp.model.metadata import Fields
from offramp.testing.batches import chain, pack_rows
from offramp.testing.toy import DictSource, toy_source

if TYPE_CHECKING:
    from .conftest import BuildF32, Recording

CASES = sorted(path.stem for path in (Path(__file__).parent / "recorded").glob("tiny-*.npz"))


def source_of(name: str, recorded: Recording) -> DictSource:
    config = config_from_hf(Fields(json.loads(str(recorded["config"])), name))
    return toy_source(config, int(recorded["seed"]))


def test_there_are_recordings() -> None:
    assert len(CASES) >= 12


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(
    name: str, recording: Callable[[str], Recording], build_f32: BuildF32
) -> None:
    recorded = recording(name)
    source = source_of(name, recorded)
    assert source.sha256() == str(recorded["weights_sha256"]), "toy_source changed: run record.py again"
    tokens = recorded["tokens"].tolist()
    num_pages = -(-len(tokens) // PAGE_SIZE)
    executor = build_f32(source, num_pages)
    rows = pack_rows(chain(tokens), [list(range(num_pages))])
    h = executor.run_layers(executor.embed(rows), rows, 0, source.config.num_layers)
    got = executor.logits(h.take(recorded["positions"].astype(np.int32)))
    expected = recorded["logits"]
    worst = np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert worst.max() < 1e-4, f"relative error by recorded position: {worst}"
