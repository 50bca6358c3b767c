"""Rejection sampling keeps the target's law over whole sequences, and a wrong q breaks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from offramp.core import NO_DRAFT, Place, Request, SamplingParams, Sequence, TokenTree
from offramp.errors import NumericError
from offramp.sample.distribution import Probabilities, distribution, draw_from
from offramp.sample.race import DRAFT_DRAW, NoiseKey
from offramp.sample.sampler import RowJob, sample_rows_numpy
from offramp.verify.exact import ExactVerifier
from offramp.verify.rejection import RejectionVerifier
from tests.speculation.wheel import Wheel, WheelMatcher
from tests.verify.chi_square import chi_square, surprise_of

VOCAB, LENGTH = 4, 3
SAMPLED = SamplingParams(temperature=0.9, max_tokens=LENGTH)
PENALIZED = SamplingParams(temperature=1.2, max_tokens=LENGTH, presence_penalty=0.7, top_k=2)


def logits_after(history: tuple[int, ...], model: int) -> np.ndarray:
    """Two models differ enough that what one has more than the other is spread over several tokens."""
    rng = np.random.default_rng([model, len(history), *history])
    return rng.standard_normal(VOCAB).astype(np.float32)


def job_after(output: tuple[int, ...], params: SamplingParams, seed: int) -> RowJob:
    return RowJob(params=params, seed=seed, position=len(output), prompt_ids=[0], output_ids=list(output))


def law(output: tuple[int, ...], params: SamplingParams, model: int) -> Probabilities:
    return distribution(logits_after(output, model), job_after(output, params, 0))


def draft(output: tuple[int, ...], count: int, params: SamplingParams, seed: int, *, honest: bool) -> TokenTree:
    """A chain drawn from another model, with its laws; a dishonest drafter says that all tokens are equally likely."""
    tokens: list[int] = []
    laws: list[Probabilities] = []
    for _ in range(count):
        here = (*output, *tokens)
        q = law(here, params, 2)
        tokens.append(draw_from(q, NoiseKey(seed=seed, choice=0, position=len(here)), DRAFT_DRAW))
        laws.append(q if honest else np.full(VOCAB, 1 / VOCAB))
    tree = TokenTree.chain(tokens)
    return TokenTree(tree.token_ids, tree.parents, (), tuple(laws))


Branches = Callable[[Probabilities, np.random.Generator], list[tuple[int, Probabilities]]]
"""A law -> some children of one node, in the order in which they are tried, and what each counts as drawn from."""


def again(q: Probabilities, rng: np.random.Generator) -> list[tuple[int, Probabilities]]:
    """Drawn one by one, perhaps the same one twice."""
    return [(int(rng.choice(VOCAB, p=q)), q) for _ in range(2)]


def without_the_first(q: Probabilities, rng: np.random.Generator) -> list[tuple[int, Probabilities]]:
    """The second is another one."""
    first = int(rng.choice(VOCAB, p=q))
    rest = q.copy()
    rest[first] = 0.0
    if rest.sum() <= 0:
        return [(first, q)]
    rest /= rest.sum()
    return [(first, q), (int(rng.choice(VOCAB, p=rest)), rest)]


def likeliest(q: Probabilities, rng: np.random.Generator) -> list[tuple[int, Probabilities]]:
    """Chosen, not drawn."""
    return [(int(token), np.eye(VOCAB)[token]) for token in np.argsort(-q)[:2]]


def liar(q: Probabilities, rng: np.random.Generator) -> list[tuple[int, Probabilities]]:
    """Is honest about the first; chooses the second, and says that it could have been any."""
    return [(int(rng.choice(VOCAB, p=q)), q), (int(q.argmin()), np.full(VOCAB, 1 / VOCAB))]


def bush(output: tuple[int, ...], depth: int, params: SamplingParams, seed: int, branches: Branches) -> TokenTree:
    """Children of every node down to a depth, drawn from another model."""
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Probabilities] = []
    rng = np.random.default_rng([seed, len(output)])
    paths: list[tuple[int, tuple[int, ...]]] = [(-1, output)]
    while paths:
        parent, path = paths.pop(0)
        if len(path) - len(output) >= depth:
            continue
        for token, q in branches(law(path, params, 2), rng):
            paths.append((len(tokens), (*path, token)))
            tokens.append(token)
            parents.append(parent)
            laws.append(q)
    return TokenTree(tuple(tokens), tuple(parents), (), tuple(laws))


def answer(
    params: SamplingParams,
    seed: int,
    lengths: tuple[int, ...],
    *,
    honest: bool = True,
    branches: Branches | None = None,
) -> tuple[int, ...]:
    """One whole sequence, drafted with these lengths in turn."""
    verifier = RejectionVerifier(sample_rows_numpy)
    request = Request(request_id="r", prompt_token_ids=[0], params=params, seed=seed)
    sequence = Sequence(request, 0, arrival=0, max_context=50)
    step = 0
    while sequence.output_len < LENGTH:
        output = tuple(sequence.output_ids.tolist())
        count = min(lengths[step % len(lengths)], LENGTH - len(output) - 1)
        if branches is None:
            tree = draft(output, count, params, seed, honest=honest)
        else:
            tree = bush(output, count, params, seed, branches)
        paths = [(), *(tuple(tree.token_ids[node] for node in path) for path in tree.paths())]
        rows = [logits_after((*output, *path), 1) for path in paths]
        [verdict] = verifier.judge([Place(sequence, tree, 0)], np.array(rows))
        sequence.tokens.extend(verdict.token_ids)
        step += 1
    return tuple(sequence.output_ids.tolist())


def surprise(
    params: SamplingParams,
    count: int,
    lengths: tuple[int, ...],
    *,
    honest: bool = True,
    branches: Branches | None = None,
) -> float:
    """Chi-square over all sequences, as a probability under the right law that it is smaller; in [0, 1]."""
    seen = Counter(answer(params, seed, lengths, honest=honest, branches=branches) for seed in range(count))
    chances = {
        sequence: float(np.prod([law(sequence[:place], params, 1)[sequence[place]] for place in range(LENGTH)]))
        for sequence in product(range(VOCAB), repeat=LENGTH)
    }
    return surprise_of(seen, chances)


@pytest.mark.parametrize("params", [SAMPLED, PENALIZED], ids=["sampled", "penalized"])
@pytest.mark.parametrize("lengths", [(2,), (0, 2, 1)], ids=str)
def test_whole_sequences_follow_the_targets_law(params: SamplingParams, lengths: tuple[int, ...]) -> None:
    assert surprise(params, 700, lengths) < 0.999


def test_a_drafter_that_lies_about_its_law_is_found_out() -> None:
    assert surprise(SAMPLED, 700, (2,), honest=False) > 0.9999


@pytest.mark.parametrize("branches", [again, without_the_first, likeliest])
def test_trees_with_several_children_keep_the_law(branches: Branches) -> None:
    assert surprise(SAMPLED, 700, (2, 1), branches=branches) < 0.999


@pytest.mark.slow
@pytest.mark.parametrize("branches", [again, without_the_first, likeliest])
@pytest.mark.parametrize("params", [SAMPLED, PENALIZED], ids=["sampled", "penalized"])
def test_many_trees_with_several_children(params: SamplingParams, branches: Branches) -> None:
    assert surprise(params, 10_000, (2, 1), branches=branches) < 0.999


def test_a_lie_about_the_second_child_is_found_out() -> None:
    assert surprise(SAMPLED, 700, (2,), branches=liar) > 0.9999


def test_the_approximation() -> None:
    """Against published quantiles."""
    for degrees, statistic, probability in [(7, 24.322, 0.999), (26, 54.052, 0.999), (26, 25.336, 0.5)]:
        assert chi_square(statistic, degrees) == pytest.approx(probability, abs=3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("params", [SAMPLED, PENALIZED], ids=["sampled", "penalized"])
def test_many_whole_sequences(params: SamplingParams) -> None:
    assert surprise(params, 20_000, (2, 1)) < 0.999


@pytest.mark.parametrize("laws", [True, False])
def test_greedy_is_plain_decoding(laws: bool) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=LENGTH)
    request = Request(request_id="r", prompt_token_ids=[0], params=greedy, seed=1)
    sequence = Sequence(request, 0, arrival=0, max_context=50)
    for tokens in product(range(VOCAB), repeat=2):
        some = (np.full(VOCAB, 1 / VOCAB),) * 2 if laws else ()
        chain = TokenTree.chain(tokens)
        tree = TokenTree(chain.token_ids, chain.parents, (), some)
        rows = np.array([logits_after(tokens[:node], 1) for node in range(3)])
        mine = RejectionVerifier(sample_rows_numpy).judge([Place(sequence, tree, 0)], rows)
        assert mine == ExactVerifier(sample_rows_numpy).judge([Place(sequence, tree, 0)], rows)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_rules_along_the_draft(temperature: float) -> None:
    """What it forbids never comes, drafts or not, and its matcher is left where it was."""
    vocab, answers = 30, set()
    for seed in range(40):
        params = SamplingParams(temperature=temperature, max_tokens=9)
        request = Request(request_id="r", prompt_token_ids=[0], params=params, seed=seed, grammar=Wheel(vocab))
        sequence = Sequence(request, 0, arrival=0, max_context=50)
        assert isinstance(sequence.matcher, WheelMatcher)
        rng = np.random.default_rng(seed if temperature else 0)
        rows = rng.standard_normal((5, vocab), dtype=np.float32)
        places = [Place(sequence, tree, 0) for tree in (NO_DRAFT, TokenTree.chain([7, 9, 11, 13]))]
        if not temperature:
            [first] = RejectionVerifier(sample_rows_numpy).judge(places[:1], rows)
            places.append(Place(sequence, TokenTree.chain([*first.token_ids, 9, 11, 13]), 0))
            exact = ExactVerifier(sample_rows_numpy).judge(places, rows)
        verdicts = RejectionVerifier(sample_rows_numpy).judge(places, rows)
        assert sequence.matcher.output == []
        for verdict in verdicts:
            assert sequence.matcher.follows(verdict.token_ids) == len(verdict.token_ids)
            answers.add(verdict.token_ids)
        assert temperature or verdicts == exact
    assert max(map(len, answers)) > 1


def test_without_a_draft_it_is_plain_sampling() -> None:
    request = Request(request_id="r", prompt_token_ids=[0], params=SAMPLED, seed=1)
    place = Place(Sequence(request, 0, arrival=0, max_context=50), NO_DRAFT, 0)
    rows = logits_after((), 1)[None]
    assert RejectionVerifier(sample_rows_numpy).judge([place], rows) == ExactVerifier(sample_rows_numpy).judge(
        [place], rows
    )


def test_it_accepts_what_two_laws_have_in_common() -> None:
    """Of first tokens the share sum(min(p, q))."""
    p, q = law((), SAMPLED, 1), law((), SAMPLED, 2)
    count = 1500
    accepted = 0
    for seed in range(count):
        request = Request(request_id="r", prompt_token_ids=[0], params=SAMPLED, seed=seed)
        sequence = Sequence(request, 0, arrival=0, max_context=50)
        tree = draft((), 1, SAMPLED, seed, honest=True)
        rows = np.array([logits_after(tree.token_ids[:node], 1) for node in range(2)])
        [verdict] = RejectionVerifier(sample_rows_numpy).judge([Place(sequence, tree, 0)], rows)
        accepted += len(verdict.accepted)
    share = float(np.minimum(p, q).sum())
    assert abs(accepted / count - share) < 3.3 * np.sqrt(share * (1 - share) / count)


def test_damaged_logits_end_the_verdict_with_an_error() -> None:
    request = Request(request_id="r", prompt_token_ids=[0], params=SAMPLED, seed=1)
    place = Place(Sequence(request, 0, arrival=0, max_context=50), TokenTree.chain([1]), 0)
    rows = np.full((2, VOCAB), np.nan, dtype=np.float32)
    [verdict] = RejectionVerifier(sample_rows_numpy).judge([place], rows)
    assert isinstance(verdict.error, NumericError)
    assert verdict.token_ids == ()
