from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.bench.quality.perplexity import reference_perplexity
from offramp.bench.workloads.item import Item
from offramp.errors import ContextLengthError
from offramp.llm.llm import LLM
from offramp.llm.serving import Serving
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import mixing

SCRIPT = mixing(chat_tokenizer().vocab_size)


def llm() -> LLM:
    return LLM.from_loaded(scripted_model(SCRIPT, max_context=200), Serving(draft="off"))


@pytest.mark.parametrize("raw", [False, True])
def test_it_is_that_of_each_next_token(raw: bool) -> None:
    """Against the model's logits behind each token."""
    model = llm()
    item = Item(name="x", task="t", content="say", references=("abc de", "other"), raw=raw)
    ids = model.model.tokenizer.encode("say") if raw else model.encode_chat([{"role": "user", "content": "say"}])
    told = []
    for token in model.model.tokenizer.encode("abc de", add_bos=False):
        logits = SCRIPT(tuple(ids), model.model.config.num_layers).astype(np.float64)
        told.append(logits[token] - np.logaddexp.reduce(logits))
        ids.append(token)
    assert reference_perplexity(model, item) == pytest.approx(math.exp(-np.mean(told)), rel=1e-5)


def test_conversations_too_and_none_without_a_reference() -> None:
    model = llm()
    talk = [{"role": "user", "content": "say"}]
    text, conversation = (Item(name="x", task="t", content=content, references=("abc",)) for content in ("say", talk))
    assert reference_perplexity(model, text) == reference_perplexity(model, conversation)
    assert reference_perplexity(model, Item(name="x", task="t", content="say")) is None


def test_a_reference_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ContextLengthError):
        reference_perplexity(llm(), Item(name="x", task="t", content="say", references=("z" * 500,)))
