"""The parser's prompts: pairs that its training kept aside."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.early_exit.data import SNIPS, data_file, encode_pairs, parser_pairs
from benchmarks.speculation.prompts import Prompt
from offramp.llm.loading import LoadedModel

PARSING = "parsing (SNIPS)"


def parser_prompts(loaded: LoadedModel, most: int) -> Sequence[Prompt]:
    """At most so many, spread over the kinds of intents."""
    assert loaded.exits is not None, "a parser without its exit pack"
    _, kept = parser_pairs(data_file(SNIPS), loaded.exits.pack.config.provenance, most)
    return [Prompt(PARSING, each.where, each.token_ids.tolist()) for each in encode_pairs(kept, loaded)]
