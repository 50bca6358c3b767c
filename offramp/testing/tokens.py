"""A tokenizer without a vocabulary file: ids 0..255 are bytes, then a few special tokens."""

from __future__ import annotations

from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from offramp.model.tokenizer import Tokenizer
from offramp.model.vocabulary import Vocabulary, byte_alphabet

SPECIALS = ("<bos>", "<eos>", "<user>", "<assistant>")
BOS, EOS, USER, ASSISTANT = range(256, 256 + len(SPECIALS))


class ByteTokenizer(Tokenizer):
    """A real `Tokenizer`, one id a byte of UTF-8; the names in SPECIALS are its special tokens."""

    def __init__(self, *, add_bos: bool = False) -> None:
        ids = byte_alphabet() | {name: 256 + i for i, name in enumerate(SPECIALS)}
        backend = Backend(models.BPE(vocab=ids, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
        vocabulary = Vocabulary(
            token_bytes=(*(bytes([byte]) for byte in range(256)), *(name.encode() for name in SPECIALS)),
            special_ids=frozenset((BOS, EOS, USER, ASSISTANT)),
            bos_token_id=BOS,
            eos_token_ids=(EOS,),
            add_bos=add_bos,
        )
        super().__init__(backend, vocabulary)
