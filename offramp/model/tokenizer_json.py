"""Hugging Face model directory -> tokenizer: tokenizer.json, and its companions for BOS and end tokens."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.errors import CorruptModelError, ModelNotFoundError, UnsupportedModelError
from offramp.model.metadata import CORRUPT_HINT, Fields, read_json, read_text
from offramp.model.vocabulary import SPACE_MARK, Vocabulary, byte_alphabet, byte_level_bytes, piece_bytes

if TYPE_CHECKING:
    import tokenizers

log = logging.getLogger("offramp")

TOKEN_NAME = "_token"  # how keys that name a token end
MAX_GAPS = 65_536  # ids without a token that a vocabulary may have
COMMON_BYTES = (*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1))
"""What texts are made of in UTF-8, without control characters and planes that hold next to nothing."""


def read_tokenizer_directory(directory: Path) -> tuple[tokenizers.Tokenizer, Vocabulary]:
    """The backend and vocabulary of a model directory; errors name the file at fault."""
    backend = _load(directory / "tokenizer.json", _num_rows(directory))
    config = _optional_json(directory / "tokenizer_config.json")
    legacy = _optional_json(directory / "special_tokens_map.json")
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    bos = _named_token(vocab, "bos_token", config, legacy)
    to_bytes, strip_start = _spelling(backend, str(directory / "tokenizer.json"))
    added = backend.get_added_tokens_decoder()
    whole_bytes = piece_bytes if to_bytes is piece_bytes else str.encode  # spaces are marked in all pieces
    _check_unique(vocab, str(directory / "tokenizer.json"))
    token_bytes = [b""] * _num_ids(vocab, str(directory / "tokenizer.json"))
    for token, token_id in vocab.items():
        token_bytes[token_id] = whole_bytes(token) if token_id in added else to_bytes(token)
    _warn_of_lost_bytes(token_bytes, str(directory / "tokenizer.json"))
    return backend, Vocabulary(
        token_bytes=tuple(token_bytes),
        special_ids=frozenset(i for i, token in added.items() if token.special),
        bos_token_id=bos,
        eos_token_ids=_end_tokens(directory, _named_token(vocab, "eos_token", config, legacy)),
        add_bos=_adds_bos(backend, config, bos),
        strip_start=strip_start,
        named_texts=_named_texts(config, legacy),
    )


def _num_ids(vocab: Mapping[str, int], where: str) -> int:
    """One more than the largest id; a few ids may have no token, but not many more than have one."""
    count = max(vocab.values(), default=-1) + 1
    if count > len(vocab) + MAX_GAPS:
        token = max(vocab, key=vocab.__getitem__)
        raise CorruptModelError(
            f"{where}: token {token!r:.80} has id {count - 1}, but there are only {len(vocab)} tokens",
            hint=CORRUPT_HINT,
        )
    return count


def _check_unique(vocab: Mapping[str, int], where: str) -> None:
    if len(set(vocab.values())) == len(vocab):
        return
    first: dict[int, str] = {}
    for token, token_id in vocab.items():
        if first.setdefault(token_id, token) != token:
            raise CorruptModelError(
                f"{where}: tokens {first[token_id]!r:.80} and {token!r:.80} both have id {token_id}", hint=CORRUPT_HINT
            )


def _warn_of_lost_bytes(token_bytes: Sequence[bytes], where: str) -> None:
    known = set(token_bytes)
    lost = [byte for byte in COMMON_BYTES if bytes([byte]) not in known]
    if lost:
        log.warning(
            "%s: no token for %d of the bytes that texts are made of, the first of them %#04x: "
            "prompts lose characters that need them",
            where,
            len(lost),
            lost[0],
        )


def _num_rows(directory: Path) -> int | None:
    """Rows of the model's embedding, as config.json says."""
    fields = _optional_json(directory / "config.json")
    return fields.integer("vocab_size") if fields.has("vocab_size") else None


def _load(path: Path, num_rows: int | None) -> tokenizers.Tokenizer:

    if not path.is_file():
        if (path.parent / "tokenizer.model").is_file():
            raise UnsupportedModelError(
                f"{path.parent} has only a SentencePiece tokenizer.model", hint="convert it to tokenizer.json first"
            )
        raise ModelNotFoundError(f"{path} does not exist", hint="a model directory needs its tokenizer.json")
    text = read_text(path)
    backend = _from_text(text, path)
    if num_rows is not None and (beyond := _added_beyond(backend, num_rows)):
        log.warning("%s: the embedding has no row for %s: plain text", path, ", ".join(map(repr, beyond)))
        backend = _from_text(_without(text, num_rows), path)
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None):  # for training: the same text would become other tokens each time
        backend.model.dropout = None
    return backend


def _from_text(text: str, path: Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises plain Exception for whatever it can't read
        raise CorruptModelError(f"{path} is not a tokenizer: {error}", hint=CORRUPT_HINT) from error


def _added_beyond(backend: tokenizers.Tokenizer, num_rows: int) -> list[str]:
    """Added tokens that the embedding lacks, as Gemma 3's text models do for pictures."""
    vocab = backend.get_vocab(with_added_tokens=False)
    added = backend.get_added_tokens_decoder().items()
    return [token.content for i, token in added if i >= num_rows and token.content not in vocab]


def _without(text: str, num_rows: int) -> str:
    """The tokenizer's JSON without the added tokens from id `num_rows` on."""
    content = json.loads(text)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < num_rows]
    return json.dumps(content)


def _optional_json(path: Path) -> Fields:
    return read_json(path) if path.is_file() else Fields({}, path.name)


def _named_token(vocab: Mapping[str, int], name: str, *sources: Fields) -> int | None:
    """The id of a token such as bos_token, written as a text or an object with `content`; the first source wins."""
    for fields in sources:
        if not fields.has(name):
            continue
        value = fields.values[name]
        text = value.get("content") if isinstance(value, dict) else value
        token_id = vocab.get(text) if isinstance(text, str) else None
        if token_id is None:
            raise fields.error(name, "a token of the vocabulary")
        return token_id
    return None


def _named_texts(*sources: Fields) -> dict[str, str]:
    """The texts of all tokens that have a name, as templates know them; the first source wins."""
    texts: dict[str, str] = {}
    for fields in sources:
        for name, value in fields.values.items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith(TOKEN_NAME) and isinstance(text, str):
                texts.setdefault(name, text)
    return texts


def _end_tokens(directory: Path, eos: int | None) -> tuple[int, ...]:
    """The tokenizer's eos_token first, then the ids of generation_config.json, or else of config.json."""
    generation = _optional_json(directory / "generation_config.json")
    ids = generation.token_ids("eos_token_id") or _optional_json(directory / "config.json").token_ids("eos_token_id")
    return tuple(dict.fromkeys(([] if eos is None else [eos]) + list(ids)))


def _adds_bos(backend: tokenizers.Tokenizer, config: Fields, bos: int | None) -> bool:
    """add_bos_token if the configuration says it, else what the tokenizer's own post-processor does."""
    around = backend.encode("", add_special_tokens=True).ids
    if config.flag("add_eos_token", False) or len(around) > 1 or (around and around != [bos]):
        raise UnsupportedModelError(
            f"{config.where}: the tokenizer puts more than BOS around a prompt (ids {around})",
            hint="only models that continue a prompt can be run",
        )
    return bos is not None and config.flag("add_bos_token", bool(around))


def _spelling(backend: tokenizers.Tokenizer, where: str) -> tuple[Callable[[str], bytes], bool]:
    """How tokens spell bytes, and whether one leading space of the whole text is dropped."""
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__()) if backend.decoder else {"type": "none"}
    steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        alphabet = byte_alphabet()
        return lambda token: byte_level_bytes(token, alphabet), False
    fallback = kinds[:3] == ["Replace", "ByteFallback", "Fuse"]
    space = fallback and steps[0]["pattern"] == {"String": SPACE_MARK} and steps[0]["content"] == " "
    strips = [(step["content"], step["start"], step["stop"]) for step in steps[3:] if step["type"] == "Strip"]
    if not space or len(strips) != len(steps[3:]) or strips not in ([], [(" ", 1, 0)]):
        raise UnsupportedModelError(
            f"{where}: decoder {' + '.join(kinds)} is not supported",
            hint="byte-level BPE and SentencePiece-like BPE with byte fallback are",
        )
    return piece_bytes, bool(strips)
