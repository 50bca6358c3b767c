"""How byte-level BPE vocabularies cut text into words before merging, by the name GGUF files give it.

Only rules known with certainty are listed; a wrong rule would give slightly wrong ids that nobody notices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offramp.errors import UnsupportedModelError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizerRule:
    """Steps applied in the order of the fields, and the quirks that go with the name."""

    single_digits: bool = False  # every digit is a word of its own
    patterns: tuple[str, ...] = ()  # each match becomes a piece of its own
    gpt2_words: bool = False  # the GPT-2 pattern
    nfc: bool = False  # text is composed (Unicode NFC) first
    ignore_merges: bool = False  # a word that is a token needs no merges
    add_bos: bool = False  # what an absent add_bos_token means


GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PUNCTUATION_AND_SPACE = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACE}"
PATH_PUNCTUATION_AND_SPACE = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACE}"

NOT_LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
NOT_UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{NOT_LOWER}*{NOT_UPPER}+"  # as in the word CamelCase: Camel, Case
CAPITAL_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{NOT_LOWER}+{NOT_UPPER}*"

LLAMA3_PATTERN = rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}{{1,3}}|{PUNCTUATION_AND_SPACE}"
TEKKEN_PATTERN = rf"{CASED_WORD}|{CAPITAL_WORD}|\p{{N}}|{PATH_PUNCTUATION_AND_SPACE}"
O200K_PATTERN = (
    rf"{CASED_WORD}{CONTRACTIONS}?|{CAPITAL_WORD}{CONTRACTIONS}?|\p{{N}}{{1,3}}|{PATH_PUNCTUATION_AND_SPACE}"
)

DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACE}"
)
KANA_AND_HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
HAN_AND_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"  # so the vocabulary's own file has it

LLAMA3 = PreTokenizerRule(patterns=(LLAMA3_PATTERN,), ignore_merges=True, add_bos=True)
QWEN2 = PreTokenizerRule(patterns=(rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}|{PUNCTUATION_AND_SPACE}",), nfc=True)

RULES = {
    "smollm": PreTokenizerRule(single_digits=True, gpt2_words=True),
    "gpt-2": PreTokenizerRule(gpt2_words=True),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "smaug-bpe": PreTokenizerRule(patterns=(LLAMA3_PATTERN,), ignore_merges=True),  # Llama 3's without its BOS: SmolLM3
    "dbrx": PreTokenizerRule(patterns=(LLAMA3_PATTERN,)),  # Phi-4
    "tekken": PreTokenizerRule(patterns=(TEKKEN_PATTERN,), ignore_merges=True, add_bos=True),
    "gpt-4o": PreTokenizerRule(patterns=(O200K_PATTERN,)),
    "deepseek-coder": PreTokenizerRule(
        patterns=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN_AND_HANGUL, r"\p{N}"),
    ),
    "deepseek-v3": PreTokenizerRule(patterns=(r"\p{N}{1,3}", KANA_AND_HAN, DEEPSEEK3_WORDS)),
    "default": PreTokenizerRule(patterns=(r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")),
}


def find_rule(name: str | None) -> PreTokenizerRule:
    """The rule of that name; an unknown or missing name raises UnsupportedModelError, never a guess."""
    known = f"known pre-tokenizers: {', '.join(sorted(RULES))}; use a model directory with tokenizer.json instead"
    if name is None:
        raise UnsupportedModelError("tokenizer.ggml.pre is missing from the file", hint=known)
    if name not in RULES:
        raise UnsupportedModelError(f"unknown pre-tokenizer tokenizer.ggml.pre={name!r}", hint=known)
    return RULES[name]


def build(rule: PreTokenizerRule) -> PreTokenizer:
    """The rule as a pre-tokenizer of the tokenizers package, ending in the byte-level alphabet."""
    from tokenizers import Regex, pre_tokenizers

    digits = [pre_tokenizers.Digits(individual_digits=True)] if rule.single_digits else []
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    bytes_step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.gpt2_words)
    return pre_tokenizers.Sequence([*digits, *splits, bytes_step])
