"""Text <-> token ids. Exact in both directions: a token is bytes, and text is the UTF-8 reading of all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import InvalidRequestError, UnsupportedModelError
from offramp.fork import in_child
from offramp.model.prefix_space import copy_without_space, without_first_space
from offramp.model.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tokenizers


LONG_CHARACTERS = 8192
"""Of a text that takes long to encode."""


class Tokenizer:
    """A model's tokenizer; safe to share between threads.

    Special tokens are control tokens such as `<|im_end|>`: one id each, made from text only where `parse_special` says
    so. Encoding follows the tokenizers package; characters that the vocabulary can't spell are dropped, as there.
    """

    def __init__(self, backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._at_start = backend.pre_tokenizer
        self._within = without_first_space(self._at_start)
        self._new_lock()
        in_child(self._new_lock)
        self.special_texts: Mapping[int, str] = {i: self.token_text(i) for i in sorted(vocabulary.special_ids)}
        self._refuse_spellable_specials()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], where: str = "GGUF metadata") -> Tokenizer:
        """The tokenizer in a GGUF file; `metadata` maps its keys to plain values, `where` names it in errors."""
        from offramp.model.tokenizer_gguf import read_gguf_tokenizer

        return cls(*read_gguf_tokenizer(metadata, where))

    @classmethod
    def from_directory(cls, directory: Path) -> Tokenizer:
        """The tokenizer of a Hugging Face model directory (tokenizer.json and its companions)."""
        from offramp.model.tokenizer_json import read_tokenizer_directory

        return cls(*read_tokenizer_directory(directory))

    @property
    def vocab_size(self) -> int:
        """Ids are 0..vocab_size-1; a model's embedding may have more rows, which have no text."""
        return len(self._vocabulary.token_bytes)

    @cached_property
    def longest_token_len(self) -> int:
        """Bytes of the longest token's text."""
        return max(map(len, self._vocabulary.token_bytes))

    @property
    def bos_token_id(self) -> int | None:
        return self._vocabulary.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that templates call eos_token."""
        return next(iter(self._vocabulary.eos_token_ids), None)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends an answer."""
        return frozenset(self._vocabulary.eos_token_ids)

    @property
    def named_texts(self) -> Mapping[str, str]:
        """The texts of the tokens that the model's files name: bos_token, eos_token, pad_token, unk_token, ..."""
        ids = {"bos_token": self.bos_token_id, "eos_token": self.eos_token_id}
        named = {name: self.token_text(i) for name, i in ids.items() if i is not None}
        return {**self._vocabulary.named_texts, **named}

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts BOS first when not told otherwise."""
        return self._vocabulary.add_bos

    @property
    def strips_first_space(self) -> bool:
        """Whether decoding drops one leading space of the whole text (SentencePiece puts one before the first word)."""
        return self._vocabulary.strip_start

    def is_special(self, token_id: int) -> bool:
        return token_id in self._vocabulary.special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """The token's bytes; b"" for the padding ids beyond the vocabulary that a model may have."""
        assert token_id >= 0, "token ids are not negative"
        return self._vocabulary.token_bytes[token_id] if token_id < self.vocab_size else b""

    def token_text(self, token_id: int) -> str:
        """The token alone as text, for people; part of a character shows as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_bos=None` does what the model's files say. BOS is never doubled.

        With `parse_special=False`, text that looks like a special token becomes ordinary tokens.
        """
        return self._with_bos(self._encode(text, parse_special).ids, add_bos)

    def encoder_within(self) -> Callable[[str], list[int]]:
        """Encodes plain text that other text comes before, on a copy of the tokenizer: it never waits for `encode`."""
        with self._lock:
            copy = copy_without_space(self._backend)
        copy.encode_special_tokens = True

        def encode(text: str) -> list[int]:
            with _without_panics():
                return copy.encode(text, add_special_tokens=False).ids

        return encode

    def encode_masked(self, text: str, masks: Mapping[str, str], *, add_bos: bool | None = None) -> list[int]:
        """Like `encode`, where characters in `masks` stand for their values but never form a special token.

        Each stretch between special tokens is encoded as one, so masks leave no trace in how it is cut into tokens.
        """
        encoding = self._encode(text, True)
        table = str.maketrans(dict(masks))
        ids: list[int] = []
        plain: list[int] = []  # ids since the last special token
        start = 0  # where in `text` they begin
        for token_id, (left, right) in [
            *zip(encoding.ids, encoding.offsets, strict=True),
            (-1, (len(text), len(text))),
        ]:
            if token_id >= 0 and not self.is_special(token_id):
                plain.append(token_id)
                continue
            stretch = text[start:left]
            unmasked = stretch.translate(table)
            ids += plain if unmasked == stretch else self._encode(unmasked, False, within=start > 0).ids
            if token_id >= 0:
                ids.append(token_id)
            plain, start = [], right
        return self._with_bos(ids, add_bos)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        kept = (i for i in ids if not (skip_special and self.is_special(i)))
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_first_space else text

    def _new_lock(self) -> None:
        self._lock = threading.Lock()  # the backend's switches are shared state

    def _encode(self, text: str, parse_special: bool, within: bool = False) -> tokenizers.Encoding:
        """`within`: the text is not the beginning of a whole one."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"the text holds a lone surrogate at character {error.start}",
                hint="send valid Unicode text",
                param="prompt",
            ) from error
        with self._lock, _without_panics():
            self._backend.encode_special_tokens = not parse_special
            if self._within is not self._at_start:
                self._backend.pre_tokenizer = self._within if within else self._at_start
            if len(text) < LONG_CHARACTERS:
                return self._backend.encode(text, add_special_tokens=False)
            # The same, but other threads run meanwhile.
            return self._backend.encode_batch([text], add_special_tokens=False)[0]

    def _with_bos(self, ids: list[int], add_bos: bool | None) -> list[int]:
        bos = self._vocabulary.bos_token_id
        if not (self._vocabulary.add_bos if add_bos is None else add_bos) or ids[:1] == [bos]:
            return ids
        if bos is None:
            raise InvalidRequestError("the model has no BOS token", hint="leave add_bos unset", param="add_bos")
        return [bos, *ids]

    def _refuse_spellable_specials(self) -> None:
        """A vocabulary whose plain text could spell a control token would let chat content forge one."""
        for token_id, text in self.special_texts.items():
            if text and token_id in self._encode(text, False).ids:
                raise UnsupportedModelError(
                    f"special token {text!r} (id {token_id}) can't be told from the same plain text",
                    hint="the tokenizer's files are inconsistent; use another conversion of the model",
                )


@contextmanager
def _without_panics() -> Iterator[None]:
    """Turn a panic of the package, which is no Exception, into an error about the text."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InvalidRequestError(
            f"the tokenizer gives up on this text: {error!s:.200}",
            hint="its pattern may take too many steps for it; send another text, or convert the model anew",
            param="prompt",
        ) from None
