"""Records which ids llama.cpp gives the lines of token_lines.py: a byte of a digest for each line.

python -m tests.model.record_tokens write FOLDER      (with offramp: the small vocabularies as GGUF files)
python -m tests.model.record_tokens record FOLDER     (with llama-cpp-python: every GGUF file in the folder)

A vocabulary's name is its file's: put the default model beside the small ones as smollm2.gguf, Gemma 3 as gemma3.gguf.
"""

from __future__ import annotations

import hashlib
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from tests.model.token_lines import byte_level_metadata, lines, sentencepiece_metadata

RECORDED = Path(__file__).parent / "recorded" / "tokens.npz"

PRE_TOKENIZERS = (
    *("smollm", "gpt-2", "llama-bpe", "qwen2", "default"),
    *("smaug-bpe", "dbrx", "tekken", "gpt-4o", "deepseek-coder", "deepseek-v3"),
)

VOCABULARIES: dict[str, Callable[[], dict[str, object]]] = {
    "sentencepiece": partial(sentencepiece_metadata, prefix=True),
    "sentencepiece-bare": partial(sentencepiece_metadata, prefix=False),
    "sentencepiece-phi3": partial(sentencepiece_metadata, prefix=True, architecture="phi3"),
    **{pre: partial(byte_level_metadata, pre) for pre in PRE_TOKENIZERS},
}


def line_of(name: str, line: str) -> str:
    """What the reference is given: it leaves out the composing that Qwen's own tokenizer does."""
    return unicodedata.normalize("NFC", line) if name == "qwen2" else line


def digest(ids: Sequence[int]) -> int:
    return hashlib.sha256(",".join(map(str, ids)).encode()).digest()[0]


def write(folder: Path) -> None:
    from gguf import GGUFWriter

    for name, make in VOCABULARIES.items():
        metadata = make()
        writer = GGUFWriter(folder / f"{name}.gguf", str(metadata.pop("general.architecture")))
        writer.add_string("general.name", "phi-3" if "phi3" in name else name)
        for key, value in metadata.items():
            add = {bool: writer.add_bool, str: writer.add_string, int: writer.add_uint32, list: writer.add_array}
            add[type(value)](key, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def record(folder: Path) -> None:
    llama_cpp = import_module("llama_cpp")  # from an environment of its own
    arrays = {}
    for path in sorted(folder.glob("*.gguf")):
        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        digests = []
        for line in lines():
            raw = line_of(path.stem, line).encode()
            ids = [model.tokenize(raw, add_bos=False, special=special) for special in (True, False)]
            digests.append([digest(each) for each in ids])
        arrays[path.stem] = np.array(digests, np.uint8)
    RECORDED.parent.mkdir(exist_ok=True)
    np.savez_compressed(RECORDED, **arrays)


if __name__ == "__main__":
    {"write": write, "record": record}[sys.argv[1]](Path(sys.argv[2]))
