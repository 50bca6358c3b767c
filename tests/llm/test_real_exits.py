"""The default model with a random pack: exits that never fire change no bit, exits never asked cost no call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from offramp import LLM, RequestOptions, RequestOutput, SamplingParams
from offramp.exits.pack_file import write_pack
from offramp.llm.loading import LoadedModel, load_model, with_exits
from offramp.testing.packs import random_pack
from tests.llm.exiting import serving

pytestmark = pytest.mark.real_model

PROMPTS = ["The capital of France is", "Once upon a time"]
LAYERS = (6, 12, 18, 24)
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=16, logprobs=3)


@pytest.fixture(scope="module")
def loaded(default_model_path: Path) -> LoadedModel:
    return load_model(str(default_model_path))


@pytest.fixture(scope="module")
def pack(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "random"
    ids = np.arange(4096, dtype=np.int32)
    pack = random_pack(
        loaded.config,
        model=loaded.source_hash,
        layers=LAYERS,
        rank=32,
        vocab_ids=ids,
        predictors="mlp",
    )
    write_pack(folder, pack)
    return folder


@pytest.fixture(scope="module")
def with_random(loaded: LoadedModel, pack: Path) -> LoadedModel:
    return with_exits(loaded, pack)


@pytest.fixture(scope="module")
def never_loaded(loaded: LoadedModel) -> list[object]:
    return answers(LLM.from_loaded(loaded).generate(PROMPTS, PARAMS, RequestOptions(mode="full")))


def answers(outputs: list[RequestOutput]) -> list[object]:
    return [(o.outputs[0].token_ids, o.outputs[0].logprobs) for o in outputs]


@pytest.fixture(params=["full", "lossless"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param  # type: ignore[no-any-return]


def test_thresholds_out_of_reach_are_full_depth(
    with_random: LoadedModel, pack: Path, never_loaded: list[object]
) -> None:
    settings = serving(pack, "unchecked", threshold=2.0, measure="margin", predictor="pack:0")
    llm = LLM.from_loaded(with_random, settings)
    assert answers(llm.generate(PROMPTS, PARAMS)) == never_loaded
    assert llm.statistics.num_asked_per_layer.total() == 2 * 15 * len(LAYERS)
    sure = LLM.from_loaded(with_random, serving(pack, "unchecked", threshold=1.0, measure="margin"))
    assert answers(sure.generate(PROMPTS, PARAMS)) == never_loaded
    assert sure.statistics.num_head_rows_per_layer.total() == 2 * 15 * len(LAYERS)


def test_full_depth_with_a_pack_is_full_depth_without(
    with_random: LoadedModel, pack: Path, never_loaded: list[object], mode: str
) -> None:
    llm = LLM.from_loaded(with_random, serving(pack, threshold=0.0))
    assert answers(llm.generate(PROMPTS, PARAMS, RequestOptions(mode=mode))) == never_loaded
    assert not llm.statistics.num_asked_per_layer
    assert not llm.statistics.num_head_rows_per_layer


def test_what_leaves_is_told_and_its_debts_are_paid(with_random: LoadedModel, pack: Path) -> None:
    llm = LLM.from_loaded(with_random, serving(pack, "unchecked", threshold={12: 0.0}))
    for output in llm.generate(PROMPTS, PARAMS):
        assert output.report.mean_exit_layer == (30 + 15 * 12) / 16
        assert output.report.exact_kv
    assert llm.statistics.num_paid_debts > 20
