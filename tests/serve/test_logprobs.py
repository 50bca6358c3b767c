"""Where the tokens of a completion begin in its text."""

from __future__ import annotations

from offramp.model.tokenizer import Tokenizer
from offramp.serve.logprobs import CompletionLogprobs
from tests.model.token_lines import sentencepiece_metadata

MARKED = Tokenizer.from_gguf(sentencepiece_metadata(prefix=True))


def test_offsets_count_the_first_space_where_a_text_goes_on() -> None:
    ids = MARKED.encode("the onions", add_bos=False)
    lengths = [len(MARKED.token_text(token)) for token in ids]
    ends = [10 + sum(lengths[: i + 1]) for i in range(len(ids))]
    part = CompletionLogprobs(MARKED, offset=10, after=ids[-1]).add(ids, [None] * len(ids), 0)
    assert part["text_offset"] == [10, *ends[:-1]]
    begun = CompletionLogprobs(MARKED, offset=10, after=1).add(ids, [None] * len(ids), 0)
    assert begun["text_offset"] == [10, *(end - 1 for end in ends[:-1])]
