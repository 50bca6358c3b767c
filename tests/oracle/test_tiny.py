"""f32 logits of tiny random models of all families against what transformers answered (recorded by record.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from offramp.core import PAGE_SIZE
from offramp.model.checkpoint import open_checkpoint
from offramp.model.config_hf import config_from_hf
from offramp.model.executor import LayerExecutor
from offramp.model.families import FAMILIES
from offramp.model.metadata import Fields
from offramp.model.tensors import WeightSource
from offramp.native import build_executor
from offramp.testing.batches import chain, pack_rows
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint
from offramp.testing.metadata import hf_config
from offramp.testing.toy import DictSource, toy_source

if TYPE_CHECKING:
    from .conftest import BuildF32, Recording

NOT_IN_GGUF = {"tiny-gemma3-query-scale", "tiny-smollm3-window"}
"""What GGUF files have no keys for."""

CASES = sorted(path.stem for path in (Path(__file__).parent / "recorded").glob("tiny-*.npz"))


def source_of(name: str, recorded: Recording) -> DictSource:
    config = config_from_hf(Fields(json.loads(str(recorded["config"])), name))
    return toy_source(config, int(recorded["seed"]))


def test_there_are_recordings() -> None:
    assert len(CASES) >= 26
    assert set(CASES) >= NOT_IN_GGUF


def test_every_family_is_recorded(recording: Callable[[str], Recording]) -> None:
    assert {source_of(name, recording(name)).config.family for name in CASES} == FAMILIES.keys()


def worst_error(
    recorded: Recording, source: WeightSource, build: Callable[[WeightSource, int], LayerExecutor]
) -> float:
    """The largest difference of a logit, relative to its row's largest."""
    tokens = recorded["tokens"].tolist()
    num_pages = -(-len(tokens) // PAGE_SIZE)
    executor = build(source, num_pages)
    rows = pack_rows(chain(tokens), [list(range(num_pages))])
    h = executor.run_layers(executor.embed(rows), rows, 0, source.config.num_layers)
    got = executor.logits(h.take(recorded["positions"].astype(np.int32)))
    expected = recorded["logits"]
    return float((np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)).max())


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(
    name: str, recording: Callable[[str], Recording], build_f32: BuildF32
) -> None:
    recorded = recording(name)
    source = source_of(name, recorded)
    assert source.sha256() == str(recorded["weights_sha256"]), "toy_source changed: run record.py again"
    assert worst_error(recorded, source, build_f32) < 1e-4


def build(source: WeightSource, num_pages: int) -> LayerExecutor:
    return build_executor(source, kv="f32", num_pages=num_pages, threads=1)


@pytest.mark.parametrize("name", CASES)
def test_logits_from_safetensors(name: str, recording: Callable[[str], Recording], tmp_path: Path) -> None:
    """Through `config.json` as transformers has it, and tensors under its names."""
    recorded = recording(name)
    source = source_of(name, recorded)
    fields = dict.fromkeys(hf_config(source.config)) | json.loads(str(recorded["config"]))
    path = write_safetensors_checkpoint(tmp_path, source.config, role_values(source), config_fields=fields)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config == source.config
    weights = checkpoint.weights("f32")
    assert all((values == role_values(weights)[role]).all() for role, values in role_values(source).items())
    assert worst_error(recorded, weights, build) < 1e-4


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_IN_GGUF))
def test_logits_from_gguf(name: str, recording: Callable[[str], Recording], tmp_path: Path) -> None:
    """B77, B82, B84: rows interleaved or not, scalings, tied heads: as llama.cpp's converter writes them."""
    recorded = recording(name)
    source = source_of(name, recorded)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", source.config, role_values(source)))
    weights = checkpoint.weights("f32")
    assert all((values == role_values(weights)[role]).all() for role, values in role_values(source).items())
    assert worst_error(recorded, weights, build) < 1e-4
