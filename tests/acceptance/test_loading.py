"""Faults that other engines showed with GGUF and safetensors files: every family that could show one, both formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, CorruptModelError, InvalidRequestError, SamplingParams, UnsupportedModelError
from offramp.core import PAGE_SIZE
from offramp.llm.loading import load_model
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.model.config import Llama3Scaling, ModelConfig
from offramp.model.families import FAMILIES
from offramp.model.gguf import read_gguf
from offramp.model.tensors import WeightFormat, WeightSource
from offramp.model.tokenizer import Tokenizer
from offramp.native import build_executor
from offramp.testing.batches import chain, pack_rows
from offramp.testing.checkpoints import RoleWeights, role_values, write_gguf, write_safetensors_checkpoint
from offramp.testing.families import family_config
from offramp.testing.models import CONTROLS, TURN, tokenizer_metadata
from offramp.testing.toy import toy_source
from tests.model.token_lines import sentencepiece_metadata
from tests.serve.asking import CHAT, COMPLETIONS, served

every_family = pytest.mark.parametrize("name", FAMILIES)
TOKENS = np.random.default_rng(5).integers(260, size=96).tolist()
GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
Floats = NDArray[np.float32]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared weights go to a folder of the test's own."""
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def logits(weights: WeightSource, tokens: list[int]) -> Floats:
    """After each token, [tokens, vocab]."""
    num_pages = -(-len(tokens) // PAGE_SIZE)
    executor = build_executor(weights, kv="f32", num_pages=num_pages, threads=1)
    rows = pack_rows(chain(tokens), [list(range(num_pages))])
    return executor.logits(executor.run_layers(executor.embed(rows), rows, 0, weights.config.num_layers))


def both(folder: Path, config: ModelConfig, weights: RoleWeights) -> Iterator[Checkpoint]:
    """The model as safetensors, then as GGUF."""
    yield open_checkpoint(write_safetensors_checkpoint(folder / "st", config, weights))
    yield open_checkpoint(write_gguf(folder / "x.gguf", config, weights))


@every_family
def test_b77_rows_are_permuted_back_where_the_converter_permutes_them(name: str, tmp_path: Path) -> None:
    config = family_config(name)
    assert (config.num_heads, config.num_kv_heads) == (4, 2)
    values = role_values(toy_source(config, seed=7))
    safetensors, gguf = both(tmp_path, config, values)
    expected = logits(toy_source(config, seed=7), TOKENS)
    assert (logits(safetensors.weights("f32"), TOKENS) == expected).all()
    assert (logits(gguf.weights("f32"), TOKENS) == expected).all()
    raw = gguf.roles["layers.0.k"].data.view("<f4").reshape(32, 64)
    assert (raw == values["layers.0.k"]).all() == (name not in ("llama", "mistral", "smollm3"))


SCALING = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32)
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("name", ["llama", "mistral", "smollm3", "qwen2", "qwen3"])
def test_b82_llama3_scaling_counts_in_every_spelling(name: str, tmp_path: Path) -> None:
    plain = family_config(name, window=None)
    layers = tuple(replace(a, rope=a.rope and replace(a.rope, scaling=SCALING)) for a in plain.attention)
    config = replace(plain, rope=replace(plain.rope, scaling=SCALING), attention=layers)
    source, ignoring = toy_source(config, seed=7), toy_source(plain, seed=7)
    expected, wrong = logits(source, TOKENS), logits(ignoring, TOKENS)
    assert np.abs(expected - wrong)[95].max() > 0.1 > 1e-3 > np.abs(expected - wrong)[0].max()
    spellings: list[dict[str, Any]] = [
        {group: {key: "llama3", **LLAMA3}, other: None}
        for group, other in (("rope_scaling", "rope_parameters"), ("rope_parameters", "rope_scaling"))
        for key in ("rope_type", "type")
    ]
    newest = {"rope_type": "llama3", "rope_theta": plain.rope.base, **LLAMA3}
    spellings.append({"rope_parameters": newest, "rope_scaling": None, "rope_theta": None})
    for i, fields in enumerate(spellings):
        path = write_safetensors_checkpoint(tmp_path / str(i), config, role_values(source), config_fields=fields)
        assert (logits(open_checkpoint(path).weights("f32"), TOKENS) == expected).all(), fields
    if FAMILIES[name].gguf_interleaved:  # the converter writes divisors for Llama's kin
        gguf = open_checkpoint(write_gguf(tmp_path / "x.gguf", config, role_values(source)))
        assert "rope_freqs.weight" in gguf.tensors
        np.testing.assert_allclose(logits(gguf.weights("f32"), TOKENS), expected, rtol=0, atol=1e-4)


@every_family
def test_b84_a_tied_head_is_the_embedding(name: str, tmp_path: Path) -> None:
    tied = family_config(name)
    values = role_values(toy_source(tied, seed=7))
    assert "lm_head" not in values
    with_head = {**values, "lm_head": values["embedding"]}
    untied = replace(tied, tie_embeddings=False)
    safetensors, gguf = both(tmp_path, tied, values)
    apart, _ = both(tmp_path / "apart", untied, with_head)
    expected = logits(apart.weights("f32"), TOKENS)
    assert np.abs(expected).max() > 0.1
    assert (logits(safetensors.weights("f32"), TOKENS) == expected).all()
    assert (logits(gguf.weights("f32"), TOKENS) == expected).all()
    usual = write_safetensors_checkpoint(tmp_path / "usual", tied, values, config_fields={"tie_word_embeddings": None})
    if name in ("gemma3", "smollm3"):  # tied unless config.json says otherwise
        assert (logits(open_checkpoint(usual).weights("f32"), TOKENS) == expected).all()
    else:
        with pytest.raises(CorruptModelError, match=r"'lm_head.weight' of shape \[260, 64\] is missing"):
            open_checkpoint(usual)
    with pytest.raises(CorruptModelError, match=r"'lm_head.weight' of shape \[260, 64\] is missing"):
        open_checkpoint(write_safetensors_checkpoint(tmp_path / "none", untied, values))


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "10 %": lambda content: content[: len(content) // 10],
    "50 %": lambda content: content[: len(content) // 2],
    "the last byte": lambda content: content[:-1],
}


@every_family
@pytest.mark.parametrize("cut", CUTS)
def test_b87_a_truncated_file_is_refused_before_anything_runs(name: str, cut: str, tmp_path: Path, cache: Path) -> None:
    config = family_config(name, num_layers=2)
    values = role_values(toy_source(config, seed=7))
    directory = write_safetensors_checkpoint(tmp_path / "st", config, values)
    for model, file in (
        (write_gguf(tmp_path / "x.gguf", config, values), tmp_path / "x.gguf"),
        (directory, directory / "model.safetensors"),
    ):
        file.write_bytes(CUTS[cut](file.read_bytes()))
        with pytest.raises(CorruptModelError, match=r"\d+ bytes|\d+ of them are present|\d+ present") as caught:
            LLM(model)
        assert "truncated" in caught.value.hint
        if cut != "10 %":  # which may cut the header
            assert "tensor '" in caught.value.message
    assert not cache.exists()


@pytest.mark.parametrize("lie", ["magic", "offset"])
def test_b87_a_lying_file_is_refused_before_anything_runs(lie: str, tmp_path: Path, cache: Path) -> None:
    config = family_config("llama", num_layers=1)
    path = write_gguf(tmp_path / "x.gguf", config, role_values(toy_source(config, seed=7)))
    content = path.read_bytes()
    if lie == "magic":
        path.write_bytes(b"GGML" + content[4:])
        message = "not a GGUF file"
    else:
        at = content.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8 + 4  # dimensions, type
        path.write_bytes(content[:at] + (2**40).to_bytes(8, "little") + content[at + 8 :])
        message = r"tensor 'output_norm.weight' needs 256 bytes at data offset 1099511627776, but 0 of them"
    with pytest.raises(CorruptModelError, match=message):
        LLM(path)
    assert not cache.exists()


@every_family
@pytest.mark.parametrize(
    ("fmt", "kind"),
    [
        *(("q8", "F16"), ("q4", "Q4_1")),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("q8", "Q8_0"), ("q8", "Q5_0"), ("q4", "F16"))),
    ],
)
def test_b89_quantized_logits_do_not_see_later_tokens(name: str, fmt: WeightFormat, kind: str, tmp_path: Path) -> None:
    config = family_config(name, num_layers=4)
    path = write_gguf(tmp_path / "x.gguf", config, role_values(toy_source(config, seed=7)), matrix_type=kind)
    weights = open_checkpoint(path).weights(fmt)
    for length in (2, 33, 40):
        first = TOKENS[:length]
        second = [*first[:-1], (first[-1] + 1) % 260]
        one, other = logits(weights, first), logits(weights, second)
        assert (one[:-1] == other[:-1]).all()
        assert (one[-1] != other[-1]).any()


# Tokenizers, through the front doors.

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def byte_level(pre: str, **changes: Any) -> dict[str, Any]:
    values = {**tokenizer_metadata(template=False), "tokenizer.ggml.pre": pre}
    return _changed(values, {"tokenizer.chat_template": TEMPLATE} | changes)


def sentencepiece(**changes: Any) -> dict[str, Any]:
    values = sentencepiece_metadata(prefix=True)
    del values["general.architecture"]  # the writer adds it
    return _changed(values, {"tokenizer.chat_template": TEMPLATE} | changes)


def _changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Keys with `__` for `tokenizer.ggml.`; None removes one."""
    values |= {key.replace("__", "tokenizer.ggml."): value for key, value in changes.items()}
    return {key: value for key, value in values.items() if value is not None}


def write_model(path: Path, metadata: dict[str, Any], *, family: str = "llama") -> Path:
    config = family_config(family, num_layers=1, vocab_size=len(metadata["tokenizer.ggml.tokens"]), max_context=256)
    weights = role_values(toy_source(config, seed=7))
    return write_gguf(path, config, weights, matrix_type="Q8_0", metadata=metadata)


NO_BOS = {"__bos_token_id": None, "__add_bos_token": None}
MESSAGES = [{"role": "user", "content": "hello 12"}]


@pytest.mark.parametrize(
    ("pre", "family"),
    [
        *(
            ("qwen2", "qwen2"),
            ("deepseek-r1-qwen", "qwen2"),
            ("qwen2", "qwen3"),
            ("smollm", "llama"),
            ("gpt-2", "llama"),
        ),
        *(("llama-bpe", "llama"), ("gpt-4o", "phi3"), ("dbrx", "phi3"), ("smaug-bpe", "smollm3")),
    ],
)
def test_b79_no_bos_is_invented(pre: str, family: str, tmp_path: Path) -> None:
    """Not even where the kind of vocabulary usually adds it."""
    path = write_model(tmp_path / "x.gguf", byte_level(pre, **NO_BOS), family=family)
    with LLM(path) as llm:
        tokenizer = llm.model.tokenizer
        assert tokenizer.bos_token_id is None
        for text in ("hello", ", 12", "<|im_start|>x"):
            own = tokenizer._backend.encode(text, add_special_tokens=False).ids
            assert llm.generate(text, GREEDY)[0].prompt_token_ids == own
        assert llm.encode_chat(MESSAGES)[0] == TURN
        with pytest.raises(InvalidRequestError, match="empty"):
            llm.generate("", GREEDY)


def test_b79_no_bos_is_invented_for_sentencepiece(tmp_path: Path) -> None:
    metadata = sentencepiece(**NO_BOS)
    metadata["tokenizer.ggml.tokens"] = ["<begin>" if t == "<s>" else t for t in metadata["tokenizer.ggml.tokens"]]
    with LLM(write_model(tmp_path / "x.gguf", metadata)) as llm:
        assert llm.model.bos_token_id is None
        ids = llm.generate("the", GREEDY)[0].prompt_token_ids
        assert ids == llm.model.tokenizer.encode("the", add_bos=False)


VOCABULARIES: dict[str, Callable[..., dict[str, Any]]] = {
    "llama-bpe": lambda **changes: byte_level("llama-bpe", __bos_token_id=0, **changes),
    "tekken": lambda **changes: byte_level("tekken", __bos_token_id=0, **changes),
    "sentencepiece": sentencepiece,
}


@pytest.mark.parametrize("kind", VOCABULARIES)
@pytest.mark.parametrize("add", [True, None])
@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.removeprefix("{{ bos_token }}")])
def test_b80_exactly_one_bos(kind: str, add: bool | None, template: str, tmp_path: Path) -> None:
    """Written by the template, by the tokenizer, or both: in chats and raw prompts, in Python and over HTTP."""
    metadata = VOCABULARIES[kind](__add_bos_token=add, **{"tokenizer.chat_template": template})
    path = write_model(tmp_path / "x.gguf", metadata)
    with served(load_model(path, threads=1)) as api:
        tokenizer = Tokenizer.from_gguf(metadata)
        bos = tokenizer.bos_token_id
        text = tokenizer.token_text(bos or 0)
        chat = api.answer("/tokenize", messages=MESSAGES)["tokens"]
        for tokens in (
            chat,
            api.answer("/tokenize", prompt="hello")["tokens"],
            api.answer("/tokenize", prompt=f"{text}hello")["tokens"],
        ):
            assert (tokens[0], tokens.count(bos)) == (bos, 1)
        usage = api.answer(CHAT, messages=MESSAGES, max_tokens=1)["usage"]
        assert usage["prompt_tokens"] == len(chat)
        usage = api.answer(COMPLETIONS, prompt=f"{text}hello", max_tokens=1)["usage"]
        assert usage["prompt_tokens"] == len(tokenizer.encode("hello"))
    with LLM(path) as llm:
        assert llm.encode_chat(MESSAGES) == chat
        assert llm.generate(f"{text}hello", GREEDY)[0].prompt_token_ids == tokenizer.encode("hello")


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2", "smaug-bpe", "dbrx", "tekken", "gpt-4o"])
def test_b88_chat_markers_are_one_id_each(pre: str, tmp_path: Path) -> None:
    """Built from metadata alone; the same as the tokenizer.json of a folder."""
    metadata = byte_level(pre)
    path = write_model(tmp_path / "x.gguf", metadata)
    from_gguf = Tokenizer.from_gguf(read_gguf(path).metadata)
    directory = tmp_path / "folder"
    directory.mkdir()
    from_gguf._backend.save(str(directory / "tokenizer.json"))
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps({**names, "add_bos_token": False}))
    from_folder = Tokenizer.from_directory(directory)
    for i, marker in enumerate(CONTROLS):
        assert from_gguf.encode(marker, add_bos=False) == from_folder.encode(marker, add_bos=False) == [i]
        assert from_gguf.encode(f"a{marker}b", add_bos=False)[1:-1] == [i]
    assert (from_gguf.bos_token_id, from_gguf.eos_token_id) == (from_folder.bos_token_id, from_folder.eos_token_id)
    text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert from_gguf.encode(text, add_bos=False) == from_folder.encode(text, add_bos=False)
    with LLM(path) as llm:
        ids = llm.encode_chat(MESSAGES)
        assert (
            [token for token in ids if token < len(CONTROLS)] == [1, 1, 2] if llm.model.tokenizer.adds_bos else [1, 2]
        )


def test_b88_markers_of_sentencepiece_vocabularies_are_one_id_each(tmp_path: Path) -> None:
    metadata = sentencepiece()
    tokens = metadata["tokenizer.ggml.tokens"]
    with LLM(write_model(tmp_path / "x.gguf", metadata)) as llm:
        for marker in ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|endoftext|>"):
            place = tokens.index(marker)
            assert llm.model.tokenizer.encode(marker, add_bos=False) == [place]
        assert {tokens[i] for i in llm.model.eos_token_ids} == {"</s>", "<|im_end|>", "<|endoftext|>"}


@pytest.mark.parametrize(
    ("pre", "family"),
    [
        *(("no-such", family) for family in sorted(FAMILIES.keys() - {"mistral"})),
        *((pre, "llama") for pre in ("deepseek-llm", "falcon", None)),
    ],
)
def test_b90_an_unknown_pre_tokenizer_is_refused_by_name(
    pre: str | None, family: str, tmp_path: Path, cache: Path
) -> None:
    metadata = byte_level("smollm", __pre=pre)
    with pytest.raises(UnsupportedModelError, match=rf"tokenizer\.ggml\.pre.*{pre or 'missing'}") as caught:
        LLM(write_model(tmp_path / "x.gguf", metadata, family=family))
    assert "llama-bpe" in caught.value.hint
    assert not list(cache.rglob("*.offramp"))


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "smollm3"])
def test_b56_a_window_that_is_switched_off_changes_no_logit(name: str, tmp_path: Path) -> None:
    config = family_config(name, window=None)
    values = role_values(toy_source(config, seed=7))

    def read(**fields: object) -> Floats:
        fields = {"layer_types": None, **fields}
        path = write_safetensors_checkpoint(
            tmp_path / str(len(list(tmp_path.iterdir()))), config, values, config_fields=fields
        )
        return logits(open_checkpoint(path).weights("f32"), TOKENS[:40])

    never = read(sliding_window=None, use_sliding_window=None)
    window: dict[str, object] = {"sliding_window": 16, "max_window_layers": 0}
    listed = {"layer_types": ["sliding_attention"] * config.num_layers}
    for fields in (window, window | listed):
        assert (read(**fields, use_sliding_window=False) == never).all()
        assert (read(**fields) == never).all()  # off is what is meant where nothing is said
        on = read(**fields, use_sliding_window=True)
        assert (on[:16] == never[:16]).all()
        assert (on[16:] != never[16:]).any()
