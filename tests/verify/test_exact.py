"""The verifier against plain sampling, one token at a time, over random trees."""

from __future__ import annotations

import random

import numpy as np
import pytest

from offramp.core import NO_DRAFT, Place, Request, SamplingParams, Sequence, TokenTree
from offramp.errors import NumericError
from offramp.sample.sampler import RowJob, sample_rows_numpy
from offramp.verify.exact import ExactVerifier

VOCAB = 12
PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.8, top_k=4, repetition_penalty=1.5, frequency_penalty=0.7, min_tokens=3),
    SamplingParams(temperature=0.0, presence_penalty=2.0, logit_bias={3: 5.0}),
]


def logits_after(history: list[int]) -> np.ndarray:
    rng = np.random.default_rng(abs(hash(tuple(history))))
    return (2 * rng.standard_normal(VOCAB)).astype(np.float32)


def make_sequence(params: SamplingParams, output: list[int], choice: int = 0) -> Sequence:
    request = Request(request_id="r", prompt_token_ids=[1, 2], params=params, seed=77, eos_token_ids=frozenset({0}))
    sequence = Sequence(request, choice, arrival=0, max_context=100)
    sequence.tokens.extend(output)
    return sequence


def plain(sequence: Sequence, count: int) -> list[int]:
    """`count` tokens drawn one by one."""
    prompt, output = sequence.prompt_ids.tolist(), sequence.output_ids.tolist()
    request = sequence.request
    for _ in range(count):
        job = RowJob(
            params=request.params,
            seed=request.seed,
            choice=sequence.choice,
            position=len(output),
            prompt_ids=prompt,
            output_ids=output,
            eos_token_ids=request.eos_token_ids,
        )
        [token] = sample_rows_numpy(logits_after(prompt + output)[None], [job])
        assert isinstance(token, int)
        output.append(token)
    return output[sequence.output_len :]


def tree_around(tokens: list[int], rng: random.Random) -> TokenTree:
    """Some of the right tokens in a tree of others."""
    token_ids, parents, right = [], [], -1
    depth = 0
    for node in range(rng.randint(0, 10)):
        if depth < len(tokens) and rng.random() < 0.5:
            token_ids.append(tokens[depth])
            parents.append(right)
            right, depth = node, depth + 1
        else:
            token_ids.append(rng.randrange(VOCAB))
            parents.append(rng.randint(-1, node - 1))
    return TokenTree(tuple(token_ids), tuple(parents))


def logits_of(sequence: Sequence, tree: TokenTree) -> list[np.ndarray]:
    history = sequence.tokens.view.tolist()
    paths = [[], *([tree.token_ids[above] for above in path] for path in tree.paths())]
    return [logits_after(history + path) for path in paths]


@pytest.mark.parametrize("seed", range(30))
def test_every_block_is_what_plain_sampling_draws(seed: int) -> None:
    rng = random.Random(seed)
    places, rows, wanted = [], [], []
    for choice in range(6):
        sequence = make_sequence(rng.choice(PARAMS), [rng.randrange(VOCAB) for _ in range(rng.randint(0, 4))], choice)
        answer = plain(sequence, 12)
        tree = tree_around(answer, rng)
        places.append(Place(sequence, tree, len(rows)))
        rows += logits_of(sequence, tree)
        wanted.append(answer)
    verdicts = ExactVerifier(sample_rows_numpy).judge(places, np.stack(rows))
    for place, verdict, answer in zip(places, verdicts, wanted, strict=True):
        assert list(verdict.token_ids) == answer[: len(verdict.token_ids)]
        assert len(verdict.token_ids) == len(verdict.accepted) + 1 == len(verdict.rows)
        assert [place.tree.token_ids[node] for node in verdict.accepted] == answer[: len(verdict.accepted)]
        assert verdict.rows == (0, *(1 + node for node in verdict.accepted))
        here = verdict.accepted[-1] if verdict.accepted else -1
        children = [n for n in range(len(place.tree)) if place.tree.parents[n] == here]
        assert verdict.token_ids[-1] not in [place.tree.token_ids[n] for n in children], "stopped too early"


def test_a_fully_accepted_chain_brings_the_bonus_token_b116() -> None:
    sequence = make_sequence(PARAMS[1], [])
    answer = plain(sequence, 6)
    tree = TokenTree.chain(answer[:5])
    [verdict] = ExactVerifier(sample_rows_numpy).judge([Place(sequence, tree, 0)], np.stack(logits_of(sequence, tree)))
    assert list(verdict.token_ids) == answer


def test_a_broken_row_fails_only_its_own_place() -> None:
    good, bad = make_sequence(PARAMS[0], []), make_sequence(PARAMS[0], [])
    answer = plain(good, 2)
    tree = TokenTree.chain(answer[:1])
    rows = [logits_after([1, 2]), *logits_of(bad, tree)]
    rows[2] = np.full(VOCAB, np.nan, dtype=np.float32)
    verdicts = ExactVerifier(sample_rows_numpy).judge([Place(good, NO_DRAFT, 0), Place(bad, tree, 1)], np.stack(rows))
    assert verdicts[0].token_ids == (answer[0],)
    assert verdicts[0].error is None
    assert verdicts[1].token_ids == (answer[0],)
    assert isinstance(verdicts[1].error, NumericError)
