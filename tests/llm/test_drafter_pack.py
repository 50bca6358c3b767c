"""A drafter pack through the Python front door: the same tokens, and refusals by name where it does not belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp import LLM, RequestOptions, RequestOutput, SamplingParams
from offramp.draft.pack_file import write_drafter
from offramp.errors import InvalidRequestError, ModelNotFoundError, UnsupportedModelError
from offramp.llm import drafter_pack
from offramp.llm.drafter_pack import side_model
from offramp.llm.loading import load_model
from offramp.llm.serving import Serving
from offramp.llm.starting import ModelStart
from offramp.testing.models import chat_tokenizer, loaded_model
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.side import random_drafter

PROMPTS = ["Water boils at", "x", "hello hello hello " * 5]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=24, logprobs=2, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=5, max_tokens=24, logprobs=2, ignore_eos=True),
]


@pytest.fixture
def pack(toy_path: Path, tmp_path: Path, own_cache: Path) -> Path:
    loaded = load_model(toy_path, threads=1)
    ids = np.arange(0, loaded.config.vocab_size, 2, dtype=np.int32)
    made = random_drafter(loaded.config, model=loaded.source_hash, taps=(1, 4), vocab_ids=ids)
    write_drafter(tmp_path / "pack", made)
    return tmp_path / "pack"


def answers(outputs: list[RequestOutput]) -> list[object]:
    return [(o.outputs[0].token_ids, o.outputs[0].logprobs, o.outputs[0].text) for o in outputs]


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("length", ["fixed", "goodput"])
def test_a_drafter_pack_changes_nothing(toy_path: Path, pack: Path, params: SamplingParams, length: str) -> None:
    plain = LLM(str(toy_path), threads=1, draft="off").generate(PROMPTS, params)
    llm = LLM(str(toy_path), threads=1, drafter=pack, draft_length=length)
    outputs = llm.generate(PROMPTS, params)
    assert answers(outputs) == answers(plain)
    assert {output.report.draft for output in outputs} == {"auto"}
    if length == "fixed":
        assert llm.statistics.num_drafts > 10
    for draft in ("eagle", "eagle,suffix", "off"):
        assert answers(llm.generate(PROMPTS, params, RequestOptions(draft=draft))) == answers(plain)


def test_what_drafts_unless_others_are_named_is_everything(pack: Path) -> None:
    serving = Serving(drafter=pack, draft_model="small")
    assert serving.default_draft == "auto"
    assert serving.drafting(RequestOptions(references=["a"]), chat_tokenizer()).drafter == "auto"
    assert Serving(drafter=pack, draft="suffix").default_draft == "suffix"
    assert Serving(drafter=pack, mode="full").default_draft == "off"


def test_without_a_pack_it_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="'eagle' needs a drafter pack") as caught:
        Serving(draft="eagle")
    assert "offramp train drafter" in caught.value.hint
    with pytest.raises(InvalidRequestError, match="'eagle' needs"):
        Serving().drafting(RequestOptions(draft="eagle"), chat_tokenizer())


@pytest.fixture
def shipped(pack: Path, toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped packs: one of another model with the same shape, and the toy's."""
    folder = tmp_path / "packs" / "drafters"
    folder.mkdir(parents=True)
    write_drafter(folder / "another", random_drafter(load_model(toy_path, threads=1).config))
    pack.rename(folder / "toy")
    monkeypatch.setattr("offramp.model.shipped.PACKS", tmp_path / "packs")
    monkeypatch.chdir("/")
    return folder


def test_a_shipped_pack_is_found_by_its_name(toy_path: Path, shipped: Path) -> None:
    llm = LLM(str(toy_path), threads=1, drafter="toy", draft="eagle", draft_length="fixed")
    assert llm.model.drafter is not None
    assert llm.model.drafter.folder == shipped / "toy"
    llm.generate(PROMPTS, PARAMS[0])
    assert llm.statistics.num_drafts > 10


def test_unasked_a_model_drafts_with_its_own_shipped_pack_or_with_none(
    toy_path: Path, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drafter_of(drafter: str | None) -> Path | None:
        start = ModelStart(model=str(toy_path), serving=Serving(drafter=drafter), threads=1)
        llm = LLM(str(toy_path), threads=1, drafter=drafter)
        packs = [llm.model.drafter, start.find().load().drafter]
        folders = {None if pack is None else pack.folder for pack in packs}
        [folder] = folders
        if folder is not None:
            llm.generate("a", PARAMS[0], RequestOptions(draft="eagle"))
        else:
            with pytest.raises(InvalidRequestError, match="'eagle' needs a drafter pack"):
                llm.generate("a", PARAMS[0], RequestOptions(draft="eagle"))
        return folder

    monkeypatch.setattr(drafter_pack, "SHIPPED_UNASKED", False)
    assert drafter_of(None) is None
    assert drafter_of("toy") == shipped / "toy"
    monkeypatch.setattr(drafter_pack, "SHIPPED_UNASKED", True)
    assert drafter_of(None) == shipped / "toy"
    assert drafter_of("off") is None
    (shipped / "toy").rename(shipped.parent / "toy")
    assert drafter_of(None) is None, "of the same shape, and yet another model's"


def test_foreign_and_missing_packs_are_refused(toy_path: Path, tmp_path: Path, own_cache: Path) -> None:
    loaded = load_model(toy_path, threads=1)
    write_drafter(tmp_path / "foreign", random_drafter(loaded.config))
    with pytest.raises(InvalidRequestError, match="belongs to toy") as caught:
        LLM(str(toy_path), threads=1, drafter=tmp_path / "foreign")
    assert caught.value.param == "drafter"
    with pytest.raises(ModelNotFoundError, match="no drafter pack"):
        LLM(str(toy_path), threads=1, drafter="nowhere")


def test_other_executors_have_no_layer_beside_them() -> None:
    executor = ScriptedModel(mixing(), num_pages=4, vocab_size=chat_tokenizer().vocab_size)
    with pytest.raises(UnsupportedModelError, match="beside the CPU executor"):
        side_model(loaded_model(executor), random_drafter(executor.config, taps=(1,)))
