"""Whatever a model's files say, they load or are refused with an OfframpError, and soon. Seeds are fixed."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from offramp.errors import OfframpError
from offramp.llm.loading import read_template, read_tokenizer
from offramp.model.checkpoint import open_checkpoint
from offramp.model.config_gguf import config_from_gguf, gguf_fields
from offramp.model.config_hf import config_from_hf
from offramp.model.families import FAMILIES
from offramp.model.generation import generation_from_gguf, generation_from_hf
from offramp.model.gguf import GgufFile
from offramp.model.metadata import Fields
from offramp.model.stored import StoredTensor
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer
from offramp.testing.checkpoints import role_values, write_gguf, write_safetensors_checkpoint
from offramp.testing.families import family_config
from offramp.testing.metadata import gguf_architecture, gguf_config, hf_config
from offramp.testing.models import tokenizer_metadata
from offramp.testing.toy import toy_source
from tests.model.token_lines import sentencepiece_metadata

MOST_SECONDS = 2.0  # of one case
NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 32, 2**31, 2**63, -(2**63), 10**400),
    *(0.0, -0.0, 0.5, 1.5, 4.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300, 3.5e38),
    *("", "x", "4", "llama", "default", "linear", "yarn", "longrope", "\ud800", "\0", "é" * 9),
    *([], [0], [1, 2], [None], ["a"], [[[]]], [True] * 8, [0.0] * 8, [1.0] * 6, [1e400] * 8, ["sliding_attention"] * 8),
    *({}, {"a": 1}, {"rope_type": "yarn", "factor": 0}, {"rope_type": "llama3", "factor": 8.0}, {"full_attention": {}}),
]


def soon(case: object, load: Callable[[], object]) -> str:
    """The name of the error that it ends with, or "". Anything but an OfframpError comes out as it is."""
    start = time.monotonic()
    try:
        load()
        return ""
    except OfframpError as error:
        return type(error).__name__ if error.message and error.hint else "silent"
    finally:
        assert time.monotonic() - start < MOST_SECONDS, case


def both(outcomes: Counter[str], *, least: int = 20) -> None:
    """The fuzz must show something: much of it loads, and much is refused."""
    assert outcomes[""] >= least, outcomes
    assert outcomes.total() - outcomes[""] >= least, outcomes
    assert not outcomes["silent"]


def load_hf(values: dict[str, Any]) -> None:
    fields = Fields(values, "config.json")
    config = config_from_hf(fields)
    generation_from_hf(fields, Fields(values, "generation_config.json"), config.vocab_size)


@pytest.mark.parametrize("name", FAMILIES)
def test_config_json(name: str) -> None:
    base = {**hf_config(family_config(name)), "eos_token_id": 1, "temperature": 0.5, "top_k": 3}
    base |= {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}, "rope_scaling": None}
    base |= {"max_window_layers": 2, "original_max_position_embeddings": 64, "quantization_config": None}
    outcomes: Counter[str] = Counter()
    for field in base:
        for value in NASTY:
            outcomes[soon((field, value), lambda changed={**base, field: value}: load_hf(changed))] += 1
    rng = Random(name)
    for _ in range(300):
        changed = mutated(rng, mutated(rng, base))
        outcomes[soon(changed, lambda changed=changed: load_hf(changed))] += 1
    both(outcomes, least=100)


def load_gguf(metadata: dict[str, Any], tensors: dict[str, StoredTensor]) -> None:
    file = GgufFile(Path("x.gguf"), 3, metadata, tensors)
    config = config_from_gguf(file)
    generation_from_gguf(gguf_fields(file), config.vocab_size)
    ChatTemplate.from_gguf(metadata, Tokenizer.from_gguf(metadata))


IN_GGUF = sorted(FAMILIES.keys() - {"mistral"})
SCALED = [*((name, "yarn") for name in IN_GGUF), ("llama", "linear")]
ALSO = [pytest.param(name, "linear", marks=pytest.mark.slow) for name in IN_GGUF if name != "llama"]


@pytest.mark.parametrize(("name", "scaling"), [*SCALED, *ALSO])
def test_gguf_metadata(name: str, scaling: str) -> None:
    config = family_config(name)
    prefix = gguf_architecture(config)
    base: dict[str, Any] = {"general.architecture": prefix, **gguf_config(config), **tokenizer_metadata()}
    base |= {f"{prefix}.rope.scaling.type": scaling, f"{prefix}.rope.scaling.factor": 4.0}
    tensors = {"token_embd.weight": StoredTensor("token_embd.weight", "F32", (260, 64), np.zeros(66560, np.uint8))}
    if scaling == "linear":  # a file with divisors may have it beside them
        divisors = np.full(8, 2, "<f4").view(np.uint8)
        tensors["rope_freqs.weight"] = StoredTensor("rope_freqs.weight", "F32", (8,), divisors)
    outcomes: Counter[str] = Counter()
    for field in base:
        for value in NASTY:
            outcomes[soon((field, value), lambda case={**base, field: value}: load_gguf(case, tensors))] += 1
    both(outcomes, least=100)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small model in both formats, with the files of its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    metadata = tokenizer_metadata()
    tokenizer = Tokenizer.from_gguf(metadata)
    config = family_config("qwen2", num_layers=1, vocab_size=tokenizer.vocab_size)
    weights = role_values(toy_source(config, seed=1))
    json_files = {
        "tokenizer.json": json.loads(tokenizer._backend.to_str()),
        "tokenizer_config.json": {
            "bos_token": "<|im_start|>",
            "eos_token": {"content": "<|im_end|>"},
            "pad_token": "x",
        },
        "generation_config.json": {"eos_token_id": [1, 2], "temperature": 0.5, "top_p": 0.9},
    }
    directory = write_safetensors_checkpoint(folder / "st", config, weights, num_shards=2, json_files=json_files)
    paths = {"st": directory, "gguf": write_gguf(folder / "x.gguf", config, weights, metadata=metadata)}
    for path in paths.values():
        load_model(path)
    return paths


def load_model(path: Path) -> None:
    """All that is read before weights are prepared, and one matrix."""
    checkpoint = open_checkpoint(path)
    tokenizer = read_tokenizer(checkpoint)
    assert isinstance(tokenizer.decode(tokenizer.encode("hello 123")), str)
    read_template(checkpoint, tokenizer)
    checkpoint.weights("q8").matrix("layers.0.k")


def damaged(rng: Random, content: bytes, head: int) -> bytes:
    """Bytes of the head changed, cut, dropped or doubled."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if not data:
            break
        at = min(rng.randrange(head), len(data) - 1)
        match rng.randrange(6):
            case 0 | 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at : at + 8] = rng.choice((b"\xff" * 8, bytes(8), b"\x01" + bytes(7), b"\x00\x00\x00\x80" * 2))
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                data[at:at] = data[at : at + rng.randrange(1, 65)]
            case 5:
                del data[rng.randrange(len(data)) :]
    return bytes(data)


def test_bytes_of_a_gguf_file(files: dict[str, Path], tmp_path: Path) -> None:
    content = files["gguf"].read_bytes()
    rng, outcomes = Random(1), Counter[str]()
    for i in range(300):
        path = tmp_path / f"{i}.gguf"  # maps of the old ones may live on
        path.write_bytes(damaged(rng, content, 9000))
        outcomes[soon(i, lambda path=path: load_model(path))] += 1
        path.unlink()
    both(outcomes)


def test_bytes_of_a_safetensors_file(files: dict[str, Path], tmp_path: Path) -> None:
    directory = copy(files["st"], tmp_path / "st")
    name = "model-00001-of-00002.safetensors"
    content = (directory / name).read_bytes()
    rng, outcomes = Random(2), Counter[str]()
    for i in range(300):
        (directory / name).unlink()
        (directory / name).write_bytes(damaged(rng, content, 1200 if i % 2 else len(content)))
        outcomes[soon(i, lambda: load_model(directory))] += 1
    both(outcomes)


def copy(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutated(rng: Random, value: Any) -> Any:
    """The value with one part replaced, dropped, renamed or moved."""
    changed = deepcopy(value)
    paths = list(places(changed))
    if not paths:
        return rng.choice(NASTY)
    by_depth = [
        path for path in paths if len(path) == rng.choice([len(p) for p in rng.sample(paths, min(3, len(paths)))])
    ]
    *outer, key = rng.choice(by_depth or paths)
    holder = changed
    for step in outer:
        holder = holder[step]
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("", "x", "type", "\ud800"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        case _:
            holder[key] = deepcopy(rng.choice(NASTY))
    return changed


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
    ],
)
def test_json_files(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    directory = copy(files["st"], tmp_path / "st")
    content = json.loads((directory / name).read_text())
    rng, outcomes = Random(name), Counter[str]()
    for i in range(150):
        changed = mutated(rng, content)
        for _ in range(i % 3):
            changed = mutated(rng, changed)
        (directory / name).write_text(json.dumps(changed))
        outcomes[soon((name, i), lambda: load_model(directory))] += 1
    both(outcomes, least=10)


@pytest.mark.parametrize("make", [tokenizer_metadata, lambda: sentencepiece_metadata(prefix=True)], ids=["bpe", "spm"])
def test_gguf_tokenizers(make: Callable[[], dict[str, Any]]) -> None:
    base = make()
    rng, outcomes = Random(3), Counter[str]()
    for i in range(120):
        changed = dict(base)
        key = rng.choice(sorted(base))
        value = base[key]
        if isinstance(value, list) and i % 2:
            at = rng.randrange(len(value))
            changed[key] = [*value[:at], *rng.choice(([], [rng.choice(NASTY)], [value[0]])), *value[at + 1 :]]
        else:
            changed[key] = rng.choice(NASTY)
        outcomes[soon((key, i), lambda changed=changed: Tokenizer.from_gguf(changed).encode("hello 12"))] += 1
    both(outcomes, least=10)


def test_what_a_file_says_is_logged_readably(caplog: pytest.LogCaptureFixture) -> None:
    base = {**hf_config(family_config("llama")), "rope_parameters": {"rope_theta": 1e4, "\ud800\n": 1}}
    load_hf(base)
    assert r"'\ud800\n'" in caplog.text
