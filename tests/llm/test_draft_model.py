"""Drafters with weights through the Python front door: the same tokens, and refusals by name where they can't draft."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp import LLM, RequestOptions, RequestOutput, SamplingParams
from offramp.errors import InvalidRequestError, ModelNotFoundError
from offramp.llm.draft_model import first_difference, join_draft_model
from offramp.llm.serving import Serving
from offramp.testing.checkpoints import role_values, write_gguf
from offramp.testing.models import chat_tokenizer, loaded_model, tokenizer_metadata
from offramp.testing.scripted import ScriptedModel, mixing
from offramp.testing.toy import toy_config, toy_source
from tests.llm.exiting import toy_pack

PROMPTS = ["Water boils at", "x", "hello hello hello " * 5]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=24, logprobs=2, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=5, max_tokens=24, logprobs=2, ignore_eos=True),
]


def write_model(
    path: Path, *, pad: int = 0, renamed: bool = False, shorter: bool = False, max_context: int = 256
) -> Path:
    """A smaller toy with the tokenizer of the tests; padded, with one token of another text, or without the last."""
    metadata = tokenizer_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    if renamed:
        metadata["tokenizer.ggml.tokens"] = ["<|start|>", *tokens[1:]]
    if shorter:  # the last token is what the last merge makes
        for name in ("tokens", "token_type", "merges"):
            values = metadata[f"tokenizer.ggml.{name}"]
            assert isinstance(values, list)
            metadata[f"tokenizer.ggml.{name}"] = values[:-1]
        tokens = tokens[:-1]
    config = toy_config(vocab_size=len(tokens) + pad, num_layers=2, max_context=max_context)
    return write_gguf(path, config, role_values(toy_source(config, seed=3)), matrix_type="Q8_0", metadata=metadata)


def answers(outputs: list[RequestOutput]) -> list[object]:
    return [(o.outputs[0].token_ids, o.outputs[0].logprobs, o.outputs[0].text) for o in outputs]


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("length", ["fixed", "goodput"])
def test_a_draft_model_changes_nothing_b65(
    toy_path: Path, tmp_path: Path, own_cache: Path, params: SamplingParams, length: str
) -> None:
    small = write_model(tmp_path / "small.gguf", pad=8, max_context=64)
    plain = LLM(str(toy_path), threads=1, draft="off").generate(PROMPTS, params)
    llm = LLM(str(toy_path), threads=1, draft_model=small, draft_length=length)
    outputs = llm.generate(PROMPTS, params)
    assert answers(outputs) == answers(plain)
    assert {output.report.draft for output in outputs} == {"auto"}
    if length == "fixed":
        assert llm.statistics.num_drafts > 10
    assert answers(llm.generate(PROMPTS, params, RequestOptions(draft="model,suffix"))) == answers(plain)


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("length", ["fixed", "goodput", "confidence", "heuristic"])
def test_the_first_layers_draft(
    toy_path: Path, tmp_path: Path, own_cache: Path, params: SamplingParams, length: str
) -> None:
    pack = toy_pack(tmp_path / "mine", toy_path)
    plain = LLM(str(toy_path), threads=1, draft="off").generate(PROMPTS, params)
    llm = LLM(str(toy_path), threads=1, exits=pack, draft="early_exit", draft_length=length)
    outputs = llm.generate(PROMPTS, params)
    assert answers(outputs) == answers(plain)
    assert {output.report.draft for output in outputs} == {"early_exit"}
    if length != "goodput":
        assert llm.statistics.num_draft_tokens > 10


def test_another_vocabulary_is_refused_naming_the_first_difference_b64(
    toy_path: Path, tmp_path: Path, own_cache: Path
) -> None:
    other = write_model(tmp_path / "other.gguf", renamed=True)
    with pytest.raises(InvalidRequestError, match=r"token 0 is .*<\|start\|>.* there and .*<\|endoftext\|>") as caught:
        LLM(str(toy_path), threads=1, draft_model=other)
    assert caught.value.param == "draft_model"


def test_a_vocabulary_that_ends_sooner_is_refused_with_both_sizes_b64(
    toy_path: Path, tmp_path: Path, own_cache: Path
) -> None:
    size = chat_tokenizer().vocab_size
    other = write_model(tmp_path / "other.gguf", shorter=True)
    with pytest.raises(InvalidRequestError, match=f"another vocabulary .*: {size - 1} tokens there and {size} here"):
        LLM(str(toy_path), threads=1, draft_model=other)


def test_sizes_differ_only_by_padding() -> None:
    tokenizer = chat_tokenizer()
    assert first_difference(tokenizer, tokenizer) is None
    target = loaded_model(ScriptedModel(mixing(), num_pages=4, vocab_size=tokenizer.vocab_size))
    assert join_draft_model(target, target).draft is target


@pytest.mark.parametrize(("draft", "needed"), [("early_exit", "exits"), ("model", "draft_model")])
def test_without_its_weights_a_drafter_is_refused_by_name(draft: str, needed: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'{draft}' needs") as caught:
        Serving(draft=draft)
    assert needed in caught.value.hint
    with pytest.raises(InvalidRequestError, match=f"'{draft}' needs"):
        Serving().drafting(RequestOptions(draft=draft), chat_tokenizer())


def test_early_exit_stands_alone() -> None:
    with pytest.raises(InvalidRequestError, match="combined"):
        Serving(draft="early_exit,suffix")


def test_a_missing_draft_model_is_named(toy_path: Path, own_cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        LLM(str(toy_path), threads=1, draft_model="no-such-model")
