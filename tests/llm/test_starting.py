"""A server's models before they run: what they will take is what they take, alone and within a share."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.core import PAGE_SIZE
from offramp.draft.pack_file import write_drafter
from offramp.errors import InvalidRequestError, ModelNotFoundError, ResourceError
from offramp.llm.drafter_pack import side_model, side_page_bytes
from offramp.llm.memory import MemoryShare, available_memory, shared_memory
from offramp.llm.serving import Serving
from offramp.llm.starting import ModelStart
from offramp.model.sources import check_known
from offramp.native.converted import open_model
from offramp.native.kv import page_bytes
from offramp.testing.side import random_drafter

OFF = Serving(draft="off")
LOTS = MemoryShare(1 << 30, 2)


def start(path: Path, **options: object) -> ModelStart:
    return ModelStart(model=str(path), threads=1, **{"serving": OFF, **options})  # type: ignore[arg-type]


def test_what_is_found_takes_what_it_says(toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path))
    found = start(toy_path).find()
    loaded = found.load()
    [prepared] = tmp_path.rglob("*.offw")
    size = prepared.stat().st_size
    assert found.weight_bytes <= size < found.weight_bytes + 16384, "what aligns tensors, and the directory"
    page = page_bytes(loaded.config, "f16")
    assert found.num_bytes == found.weight_bytes + loaded.executor.num_pages * page
    assert loaded.max_context == found.plan.max_context


def test_with_plenty_of_memory_a_share_changes_nothing(toy_path: Path, own_cache: Path) -> None:
    assert start(toy_path).find(LOTS).plan == start(toy_path).find().plan


def test_models_that_share_fit_together(toy_path: Path, own_cache: Path) -> None:
    weights = start(toy_path).find(LOTS).weight_bytes
    size = page_bytes(open_model(toy_path).config, "f16")
    share = MemoryShare(3 * (weights + 20 * size), 3)
    found = start(toy_path).find(share)
    assert found.plan.num_pages == 20
    assert 3 * found.num_bytes <= share.num_bytes


def test_where_a_share_is_too_small_for_a_sequence_models_take_turns(toy_path: Path, own_cache: Path) -> None:
    weights = start(toy_path).find(LOTS).weight_bytes
    size = page_bytes(open_model(toy_path).config, "f16")
    found = start(toy_path).find(MemoryShare(weights + 12 * size, 4))
    assert found.plan.num_pages == 6, "half of what its weights leave"
    assert found.plan.max_context == 6 * PAGE_SIZE


def test_kv_memory_that_is_asked_for_is_no_matter_of_shares(toy_path: Path, own_cache: Path) -> None:
    size = page_bytes(open_model(toy_path).config, "f16")
    assert start(toy_path, kv_memory=9 * size).find(LOTS).plan.num_pages == 9
    with pytest.raises(ResourceError, match="K/V memory were asked for"):
        start(toy_path, kv_memory="2GiB").find(LOTS)


def test_weights_alone_may_be_too_large(toy_path: Path, own_cache: Path) -> None:
    with pytest.raises(ResourceError, match=r"the weights of .* all models may take 1\.0 KiB"):
        start(toy_path).find(MemoryShare(1024, 2))


def test_a_draft_model_is_counted_and_holds_the_same_texts(toy_path: Path, own_cache: Path) -> None:
    both = start(toy_path, serving=Serving(draft_model=toy_path)).find(LOTS)
    alone = start(toy_path).find(LOTS)
    assert both.weight_bytes == 2 * alone.weight_bytes
    assert both.draft_plan == both.plan
    assert both.num_bytes == 2 * alone.num_bytes
    weights, size = alone.weight_bytes, page_bytes(open_model(toy_path).config, "f16")
    share = MemoryShare(2 * (2 * weights + 40 * size), 2)
    assert start(toy_path, serving=Serving(draft_model=toy_path)).find(share).plan.num_pages == 20
    loaded = both.load()
    assert loaded.draft is not None
    assert loaded.draft.executor.num_pages == loaded.executor.num_pages


def test_a_drafter_pack_is_counted_with_its_layer(toy_path: Path, tmp_path: Path, own_cache: Path) -> None:
    config = open_model(toy_path).config
    alone = start(toy_path).find(LOTS)
    pack = write_drafter(tmp_path / "pack", random_drafter(config, model=alone.load().source_hash, taps=(1,)))
    serving = Serving(drafter=tmp_path / "pack")
    both = start(toy_path, serving=serving).find(LOTS)
    assert both.weight_bytes > alone.weight_bytes
    side = side_page_bytes(config, pack, "f16")
    assert 0 < side < page_bytes(config, "f16")
    assert both.num_bytes == both.weight_bytes + both.plan.num_pages * (page_bytes(config, "f16") + side)
    share = MemoryShare(2 * (both.weight_bytes + 20 * (page_bytes(config, "f16") + side)), 2)
    within = start(toy_path, serving=serving).find(share)
    assert within.plan.num_pages == 20
    loaded = within.load()
    assert loaded.drafter is not None
    assert side_model(loaded, loaded.drafter).executor.num_pages == 20


def test_impossible_options_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidRequestError, match="weights='q5'"):
        ModelStart(model="nowhere", serving=OFF, weights="q5")


def test_all_models_share_what_is_free_unless_they_get_less() -> None:
    available = available_memory()
    assert shared_memory(None, 1) is None
    assert shared_memory(1 << 20, 1) == 1 << 20
    assert (shared_memory(None, 2) or 0) == pytest.approx(0.75 * available, rel=0.2)
    with pytest.raises(ResourceError, match="are available"):
        shared_memory(1 << 59, 2)


def test_names_that_lead_nowhere_are_known_without_a_network(toy_path: Path) -> None:
    for name in (str(toy_path), "smollm2-135m", "hf:a/b", "pypi:nothing-like-it"):
        check_known(name)
    with pytest.raises(ModelNotFoundError, match="no model 'smollm3'"):
        check_known("smollm3")
