"""Recomputes with transformers what the recordings hold: are they still true? Needs torch (`make oracle`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from .conftest import Recording

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
CASES = sorted(path.stem.removeprefix("tiny-") for path in (HERE / "recorded").glob("tiny-*.npz"))


@pytest.fixture(scope="module")
def record() -> Iterator[ModuleType]:
    """The recording script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        import record

        yield record


@pytest.fixture(scope="module")
def default_model(record: ModuleType, default_model_path: Path) -> Any:
    return record.load_default_model(default_model_path)


@pytest.fixture(scope="module")
def gemma(record: ModuleType, gemma_path: Path) -> Any:
    return record.load_gemma(gemma_path)


def test_every_tiny_config_is_recorded(record: ModuleType) -> None:
    assert sorted(record.OVERRIDES) == CASES


@pytest.mark.parametrize("name", CASES)
def test_tiny_recordings_are_true(name: str, record: ModuleType, recording: Callable[[str], Recording]) -> None:
    recorded, fresh = recording(f"tiny-{name}"), record.tiny(name)
    assert recorded.keys() == fresh.keys()
    for key, value in recorded.items():
        if key == "logits":
            np.testing.assert_allclose(fresh[key], value, rtol=0, atol=2e-5 * np.abs(value).max())
        else:
            np.testing.assert_array_equal(fresh[key], value, key)


def test_the_default_models_recording_is_true(
    record: ModuleType, default_model: Any, recording: Callable[[str], Recording]
) -> None:
    recorded = recording("default-model")
    for i, prompt in enumerate(record.PROMPTS):
        tokens = default_model.encode(prompt)
        assert tokens == recorded[f"prompt{i}.tokens"].tolist()
        greedy = recorded[f"prompt{i}.greedy"]
        rows = record.logits(default_model.model, [*tokens, *greedy[:-1].tolist()])[len(tokens) - 1 :]
        decided = recorded[f"prompt{i}.gaps"] > 1e-3
        assert (rows.argmax(axis=1) == greedy)[decided].all()
        best = np.sort(rows, axis=1)[:, -2:]
        np.testing.assert_allclose(best[:, 1] - best[:, 0], recorded[f"prompt{i}.gaps"], rtol=0, atol=1e-3)
    for i in record.LOGIT_PROMPTS:
        fresh = record.some_logits(default_model, recorded[f"prompt{i}.tokens"].tolist())
        np.testing.assert_allclose(fresh["best_logits"], recorded[f"prompt{i}.best_logits"], rtol=0, atol=1e-3)
        np.testing.assert_allclose(fresh["strided_logits"], recorded[f"prompt{i}.strided_logits"], rtol=0, atol=1e-3)
    tokens = default_model.encode(record.PERPLEXITY_TEXT)
    assert tokens == recorded["text.tokens"].tolist()
    assert record.perplexity(default_model, tokens) == pytest.approx(float(recorded["text.perplexity"]), rel=1e-5)


def test_the_recording_of_gemma_is_true(record: ModuleType, gemma: Any, recording: Callable[[str], Recording]) -> None:
    recorded, fresh = recording("gemma3-270m"), record.gemma(gemma)
    assert recorded.keys() == fresh.keys()
    for key, value in recorded.items():
        match key.partition(".")[2]:
            case "best_logits" | "strided_logits":
                np.testing.assert_allclose(fresh[key], value, rtol=0, atol=1e-3)
            case "best_ids":  # the worst of the best may change places
                np.testing.assert_array_equal(fresh[key][:, :1], value[:, :1], key)
            case _:
                np.testing.assert_array_equal(fresh[key], value, key)
