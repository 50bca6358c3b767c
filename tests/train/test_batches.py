"""Pairs become batches: targets where answers are, each example once an epoch, little padding. Needs torch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.errors import InvalidRequestError  # noqa: E402
from offramp.model.template import ChatTemplate  # noqa: E402
from offramp.testing.models import END_OF_TURN, chat_tokenizer, tokenizer_metadata  # noqa: E402
from offramp.train.layerskip.batches import (  # noqa: E402
    Example,
    answer_vocabulary,
    encode_pairs,
    make_batch,
    plan_epoch,
    shared_prefix,
)
from offramp.train.pairs import Pair  # noqa: E402

EXAMPLES = [Example((1, 2, 3, 4), (5, 6, 9)), Example((1, 2, 7), (8, 9)), Example((1, 2, 3, 8, 8), (9,))]


def test_a_batch_asks_for_answers_alone() -> None:
    batch = make_batch(EXAMPLES, (1, 2))
    assert batch.prefix.tolist() == [1, 2]
    assert batch.tokens.tolist() == [[3, 4, 5, 6], [7, 8, 0, 0], [3, 8, 8, 0]]
    assert batch.targets.tolist() == [[-1, 5, 6, 9], [8, 9, -1, -1], [-1, -1, 9, -1]]
    assert batch.num_rows == 14
    assert batch.positions.tolist() == [0, 1, *[2, 3, 4, 5] * 3]
    assert batch.target_rows.tolist() == [3, 4, 5, 6, 7, 12]


def test_the_prefix_is_shared_and_leaves_a_token() -> None:
    assert shared_prefix(EXAMPLES) == (1, 2)
    assert shared_prefix([EXAMPLES[0]]) == (1, 2, 3)
    assert shared_prefix([Example((4,), (1,)), Example((5,), (1,))]) == ()


def test_examples_go_through_the_template_and_end() -> None:
    tokenizer = chat_tokenizer()
    template = ChatTemplate.from_gguf(tokenizer_metadata(), tokenizer)
    pairs = [Pair("hello <|im_end|>", "[A<|im_end|>]"), Pair("x" * 99, "y")]
    (example,) = encode_pairs(pairs, tokenizer, template, max_len=90)
    assert list(example.prompt) == template.encode_chat(tokenizer, [{"role": "user", "content": pairs[0].prompt}])
    assert example.answer[-1] == END_OF_TURN
    assert END_OF_TURN not in example.answer[:-1]
    assert tokenizer.decode(example.answer) == pairs[0].reference
    with pytest.raises(InvalidRequestError, match="longer than 5") as caught:
        encode_pairs(pairs, tokenizer, template, max_len=5)
    assert "--" not in caught.value.hint, "no option changes that"


def test_an_epoch_has_each_example_once_within_bounds() -> None:
    lengths = np.random.default_rng(0).integers(20, 80, 500).tolist()
    plan = plan_epoch(lengths, 400, seed=1, epoch=2)
    assert sorted(i for batch in plan for i in batch) == list(range(500))
    rows = [max(lengths[i] for i in batch) * len(batch) for batch in plan]
    assert max(rows) <= 400
    assert sum(rows) < 1.05 * sum(lengths)
    assert plan == plan_epoch(lengths, 400, seed=1, epoch=2)
    assert plan != plan_epoch(lengths, 400, seed=1, epoch=3)
    assert plan != plan_epoch(lengths, 400, seed=2, epoch=2)


def test_an_example_beyond_the_bound_runs_alone() -> None:
    plan = plan_epoch([5, 90, 5], 20, seed=0, epoch=0)
    assert sorted(sorted(batch) for batch in plan) == [[0, 2], [1]]


def test_the_vocabulary_covers_the_answers() -> None:
    assert answer_vocabulary(EXAMPLES, 0.5, 99).tolist() == [9]
    first, *rest = answer_vocabulary(EXAMPLES, 1.0, 99).tolist()
    assert (first, sorted(rest)) == (9, [5, 6, 8])
    assert len(answer_vocabulary(EXAMPLES, 1.0, 2)) == 2
