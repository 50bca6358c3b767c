"""Lines of all kinds of text, and small vocabularies made from them, for comparing tokenizers with a reference.

Needs only the standard library: the reference's own environment runs it too.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from functools import cache

NUM_LINES = 2048

PROSE = (
    "The old lighthouse keeper climbed the stairs", "It's what they'd've said, isn't it?", "I'LL GO; YOU'RE LATE",
    "two onions and a bag of rice", "Once the rain stopped", "the the the", "counted them again, and again",
    "McDonald iPhone CamelCase snake_case SCREAMING_CASE", "naïve café Ångström straße İstanbul", "«Où est-il ?»",
    "Привет, как дела?", "ΑΒΓ αβγδ", "Việt Nam đẹp",
    "w/o e.g. 'tis 'S 'Ll", "well\u2019s \u201cquoted\u201d \u2014 dash",
)  # fmt: skip
CODE = (
    "def f(x):\n    return x[0:123456] != 0x1F  # comment\r\n", "for (int i = 0; i < n; ++i) { sum += a[i]; }",
    "\tif err != nil {\n\t\treturn err\n\t}", "SELECT * FROM t WHERE id >= 10;", "<div class=\"a\">text</div>",
    "/usr/share/doc/readme-3.md.gz", "https://github.com/a?b=c&d=%20#e", "$x = @{$y}->{'z'};", "a//b\\\\c",
    "{\"key\": [1, 2.5, null, true]}", "...!!!???", "--- +++ === *** ///\n//\n", "x+=1;y**=2;z<<=3", "`code` ```py\n",
)  # fmt: skip
NUMBERS = (
    "1",
    "12",
    "123",
    "1234",
    "12345",
    "3.14159",
    "1,000,000",
    "²³½",
    "٣٤٥",
    "\uff11\uff12\uff13",
    "2024-06-07T08:09:10Z",
)
SCRIPTS = (
    "日本語のテキスト", "中文分词没有空格。", "한국어 문장입니다", "العربية من اليمين", "שלום עולם", "हिन्दी में लिखा",
    "ภาษาไทย", "தமிழ்", "ქართული", "አማርኛ", "ᚠᚢᚦ", "\U0001d518\U0001d52b\U0001d526",
    "𠀀𠀁",
)  # fmt: skip
EMOJI = ("🙂", "🌧️", "👨‍👩‍👧", "🇩🇪", "👍🏽", "❤", "♥️", "🧑🏿‍🚀", "✓", "…")
CONTROLS = (
    "\x00", "\x01\x02", "\x07", "\x0b", "\x0c", "\x1b[31m", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u2028",
    "\u3000", "\ufeff", "\ufffd", "\u202e", "e\u0301", "o\u0308\u0323", "\ue000", "\U000f0000",
)  # fmt: skip
SPACES = (" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", " \t ", " " * 8)
MARKUP = (
    "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<start_of_turn>user",
    "<end_of_turn>", "[INST]", "[/INST]", "<tool_call>", "<0x0A>", "<0xFF>", "▁", "▁▁the", "<|", "|>", "<|im_",
    "<table>",
)  # fmt: skip
KINDS = (PROSE, CODE, NUMBERS, SCRIPTS, EMOJI, CONTROLS, SPACES, MARKUP)

WHOLE = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]")
FOUND = ("  ", "    ", "\n\n", "<table>", "<tool_call>")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
NUM_PIECES = 1500
LONGEST = 7
SEED = 20240607


@cache
def lines() -> tuple[str, ...]:
    """Each joins one to six fragments, with or without spaces between them; the first are the fragments alone."""
    rng = random.Random(SEED)
    single = [fragment for kind in KINDS for fragment in kind]
    joined = []
    while len(single) + len(joined) < NUM_LINES:
        parts = [rng.choice(rng.choice(KINDS)) for _ in range(rng.randint(1, 6))]
        joined.append(rng.choice(("", "", " ")).join(parts))
    return (*single, *joined)


def sentencepiece_metadata(*, prefix: bool, architecture: str = "llama") -> dict[str, object]:
    """A vocabulary of type `llama`: scores, byte fallback, every kind of token. Rare characters have no piece."""
    text = tuple(line.replace(" ", "▁") for line in lines())
    counts = Counter("".join(text)).most_common()
    characters = [
        c for c, count in counts if count > 50 and c != "\0" and (c == "▁" or unicodedata.category(c) != "So")
    ]
    # llama.cpp, unlike SentencePiece, joins pieces to control tokens: there are none to join.
    unwanted = "".join(("<s></s><unk>", *WHOLE))
    pieces = [piece for piece in _pieces(text, "".join(characters)) if piece not in FOUND and piece not in unwanted]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    scores = [0.0] * len(tokens)
    found = [text for text in FOUND if architecture != "phi3" or not text.isspace()]
    for group, kind in ((pieces, NORMAL), (sorted(characters), NORMAL), (found, USER_DEFINED), (WHOLE, CONTROL)):
        scores += [-float(len(scores) + place) for place in range(len(group))]
        tokens += group
        types += [kind] * len(group)
    return {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def byte_level_metadata(pre: str) -> dict[str, object]:
    """A vocabulary of type `gpt2` with all ways to make its tokens as merges."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    alphabet = {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}
    text = tuple("".join(alphabet[byte] for byte in line.encode()) for line in lines())
    pieces = _pieces(text, "".join(alphabet.values()))
    known = {*pieces, *alphabet.values()}
    cuts = ((piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece)))
    tokens = [*alphabet.values(), *pieces, *FOUND, *WHOLE]
    types = [NORMAL] * (len(tokens) - len(FOUND) - len(WHOLE)) + [USER_DEFINED] * len(FOUND) + [CONTROL] * len(WHOLE)
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in cuts if left in known and right in known],
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        "tokenizer.ggml.add_bos_token": False,
    }


@cache
def _pieces(text: tuple[str, ...], characters: str) -> list[str]:
    """The most frequent strings of two or more of the characters, most frequent first."""
    allowed = set(characters)
    counts = Counter(line[a : a + n] for line in text for n in range(2, LONGEST + 1) for a in range(len(line) - n + 1))
    spelled = [(-count, piece) for piece, count in counts.items() if allowed.issuperset(piece)]
    return [piece for _, piece in sorted(spelled)[:NUM_PIECES]]
