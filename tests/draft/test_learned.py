"""What a drafter learned from one sequence may change its scores for another, never what it proposes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from offramp.core import DraftAsk, Drafter, DraftParams, TokenTree, Verdict
from offramp.draft.ngram import NgramDrafter
from offramp.draft.reference import ReferenceDrafter
from offramp.draft.suffix import SuffixDrafter

RANDOM = random.Random(5)
TEXTS = [[RANDOM.randrange(4) for _ in range(60)] for _ in range(12)]
REFERENCES = DraftParams(references=tuple(np.array(text, dtype=np.int32) for text in TEXTS[:3]))

MAKERS = {
    "ngram": NgramDrafter,
    "reference": ReferenceDrafter,
    "suffix": lambda: SuffixDrafter(store_bytes=0),
}


def ask(text: list[int], name: str) -> DraftAsk:
    return DraftAsk((name, 0), 1, np.array(text, dtype=np.int32), max_nodes=16, max_depth=16, drafting=REFERENCES)


def proposals(drafter: Drafter) -> list[TokenTree]:
    return [drafter.propose([ask(text, f"late {number}")])[0] for number, text in enumerate(TEXTS)]


@pytest.mark.parametrize("stands", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_scores_alone_change(name: str, stands: bool) -> None:
    drafter = MAKERS[name]()
    for round_ in range(20):
        for number, text in enumerate(TEXTS):
            asked = ask(text, f"early {round_} {number}")
            [tree] = drafter.propose([asked])
            path = max(tree.paths(), key=len, default=())
            tokens = [tree.token_ids[node] for node in path] if stands else []
            drafter.observe(asked, tree, Verdict(token_ids=(*tokens, 99), accepted=path if stands else (), rows=()))
    fresh, learned = proposals(MAKERS[name]()), proposals(drafter)
    assert [(tree.token_ids, tree.parents) for tree in learned] == [(tree.token_ids, tree.parents) for tree in fresh]
    assert [tree.scores for tree in learned] != [tree.scores for tree in fresh]
    assert sum(map(len, fresh)) > 50
