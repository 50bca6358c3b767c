"""Beam search against all texts there are, its K/V against plain runs, and two models that guide each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.collaborate import Twist
from offramp.collaborate.ensemble.beam import ExecutorStepper, Hypothesis, NoGuide, Scores, beam_search
from offramp.collaborate.ensemble.combine import log_softmax
from offramp.collaborate.ensemble.follower import Follower
from offramp.collaborate.ensemble.twist import NearestGuide
from offramp.core import Ids
from offramp.errors import InvalidRequestError, ResourceError
from offramp.llm import LLM
from offramp.llm.loading import LoadedModel, load_model
from offramp.testing.models import END_OF_TURN, says, scripted_model

VOCAB, END = 4, 3
PROMPT = np.array([0], dtype=np.int32)


class Table:
    """A model of four tokens whose chances depend on the last two, drawn once."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._rows = np.log(rng.dirichlet(np.ones(VOCAB), (VOCAB, VOCAB)))
        self._texts: list[tuple[int, ...]] = []

    def logprobs(self, text: tuple[int, ...]) -> Scores:
        before = (0, *text)
        row: Scores = self._rows[before[-2] if len(before) > 1 else 0, before[-1]]
        return row

    def begin(self, prompt: Ids) -> Scores:
        self._texts = [()]
        return self.logprobs(())

    def step(self, parents: Sequence[int], token_ids: Sequence[int]) -> Scores:
        self._texts = [(*self._texts[parent], token) for parent, token in zip(parents, token_ids, strict=True)]
        return np.stack([self.logprobs(text) for text in self._texts])


def all_texts(table: Table, longest: int) -> list[tuple[float, tuple[int, ...]]]:
    """Mean log-probability of every text that ends, or is cut at the longest."""
    found = []
    for length in range(1, longest + 1):
        for text in itertools.product(range(VOCAB), repeat=length):
            if END in text[:-1] or (text[-1] != END and length < longest):
                continue
            total = sum(float(table.logprobs(text[:place])[token]) for place, token in enumerate(text))
            found.append((total / length, text))
    return sorted(found, key=lambda each: (-each[0], each[1]))


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_best_of_all_texts(seed: int) -> None:
    table = Table(seed)
    wide = beam_search(table, PROMPT, width=400, max_tokens=4, end_ids=frozenset({END}), guide=NoGuide())
    best = all_texts(table, 4)
    assert [each.token_ids for each in wide] == [text for _, text in best]
    assert [each.mean_score for each in wide] == pytest.approx([score for score, _ in best])
    assert all(each.ended == (each.token_ids[-1] == END) for each in wide)


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy(seed: int) -> None:
    table = Table(seed)
    [found] = beam_search(table, PROMPT, width=1, max_tokens=6, end_ids=frozenset({END}), guide=NoGuide())
    text: tuple[int, ...] = ()
    while len(text) < 6 and (not text or text[-1] != END):
        text = (*text, int(table.logprobs(text).argmax()))
    assert found.token_ids == text
    assert found.logprob == found.score


def test_beams_have_the_logits_of_plain_runs(toy_path: Path, own_cache: Path, rng: np.random.Generator) -> None:
    """Whatever becomes whose parent, over page borders."""
    loaded, plain = load_model(toy_path, threads=1), load_model(toy_path, threads=1)
    width, vocab = 3, loaded.tokenizer.vocab_size
    stepper, follower = ExecutorStepper(loaded.executor, width, vocab), Follower(plain.executor, 256)
    prompt = rng.integers(3, 200, 30).astype(np.int32)

    def alone(text: Sequence[int]) -> Scores:
        tokens = np.concatenate([prompt, np.array(text, dtype=np.int32)])
        return log_softmax(follower.logits(tokens)[:vocab])

    assert (stepper.begin(prompt) == alone(())).all()
    texts: list[tuple[int, ...]] = [()]
    for parents in ([0, 0, 0], [1, 1, 0], [2, 0, 2], [0, 1], [1, 0, 1]):
        tokens = rng.integers(3, 200, len(parents)).tolist()
        texts = [(*texts[parent], token) for parent, token in zip(parents, tokens, strict=True)]
        rows = stepper.step(parents, tokens)
        for row, text in zip(rows, texts, strict=True):
            assert (row == alone(text)).all()


def test_beams_without_room_are_refused(toy_path: Path, own_cache: Path) -> None:
    loaded = load_model(toy_path, threads=1)
    stepper = ExecutorStepper(loaded.executor, loaded.executor.num_pages // 2, loaded.tokenizer.vocab_size)
    with pytest.raises(ResourceError, match="40 tokens for each"):
        stepper.begin(np.arange(3, 43, dtype=np.int32))


def test_the_nearest_text_counts() -> None:
    """Behind 1, 5: one difference from (1, 2, 3), none from (1, 5), which ends there."""
    guide = NearestGuide([(1, 2, 3), (1, 5)], 2.0)
    losses = guide.penalties((1, 5), 8)
    assert losses.tolist() == [2.0] * 8  # from (1, 5), whose end is passed; by 3 both are one away
    assert guide.penalties((1,), 8)[[2, 5, 7]].tolist() == [0.0, 0.0, 2.0]
    assert guide.penalties((1, 2), 8)[[3, 4]].tolist() == [0.0, 2.0]
    assert guide.penalties((7, 2), 8)[[3, 4]].tolist() == [2.0, 4.0]


def test_a_strong_guide_is_followed_and_none_changes_nothing() -> None:
    table = Table(1)
    free = beam_search(table, PROMPT, width=4, max_tokens=4, end_ids=frozenset({END}), guide=NoGuide())
    weak = beam_search(
        table, PROMPT, width=4, max_tokens=4, end_ids=frozenset({END}), guide=NearestGuide([(1, 1)], 0.0)
    )
    assert [each.token_ids for each in weak] == [each.token_ids for each in free]
    text = (2, 0, 2, END)
    led = beam_search(table, PROMPT, width=4, max_tokens=4, end_ids=frozenset({END}), guide=NearestGuide([text], 50.0))
    assert led[0].token_ids == text
    assert led[0].score == pytest.approx(led[0].logprob)
    assert free[0].token_ids != text


def test_an_empty_hypothesis_has_a_score() -> None:
    assert Hypothesis().mean_score == 0.0


def speaking(answer: str) -> LoadedModel:
    return scripted_model(says(("hello", answer), end=END_OF_TURN), num_pages=64)


def test_models_that_disagree_come_together() -> None:
    twist = Twist(speaking("one"), speaking("two"), width=2, rounds=2, first_strength=0.1, second_strength=500.0)
    output = twist.generate(("hello", "hello"), max_tokens=6)
    assert len(output.turns) == 3
    assert output.turns[0][0] == "one"
    assert output.turns[1][0] in output.turns[0]  # the second follows, to what it likes best of it
    assert output.text == output.turns[2][0] == "one"
    stubborn = Twist(speaking("one"), speaking("two"), width=2, rounds=1, second_strength=0.0)
    assert stubborn.generate(("hello", "hello"), max_tokens=6).text == "two"


def test_a_beam_of_one_without_a_guide_is_greedy_decoding(toy_path: Path, own_cache: Path) -> None:
    from offramp.core import SamplingParams

    loaded = load_model(toy_path, threads=1)
    prompt = np.array(loaded.tokenizer.encode("hello world"), dtype=np.int32)
    stepper = ExecutorStepper(loaded.executor, 1, loaded.tokenizer.vocab_size)
    [found] = beam_search(stepper, prompt, width=1, max_tokens=12, end_ids=loaded.eos_token_ids, guide=NoGuide())
    with LLM.from_loaded(load_model(toy_path, threads=1)) as llm:
        alone = llm.generate("hello world", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0]
    assert list(found.token_ids) == alone.token_ids


@pytest.mark.parametrize(
    ("options", "name"),
    [({"width": 0}, "width"), ({"rounds": 0}, "rounds"), ({"first_strength": -1}, "first_strength")],
)
def test_impossible_twists_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        Twist(speaking("one"), speaking("two"), **options)


def test_one_model_can_not_guide_itself_and_prompts_must_fit() -> None:
    member = speaking("one")
    with pytest.raises(InvalidRequestError, match="second"):
        Twist(member, member)
    with pytest.raises(InvalidRequestError, match="prompts"):
        Twist(speaking("one"), speaking("two")).generate(("hello", ""), max_tokens=5)
    for prompts in ("ab", ("a",), ("a", "b", "c")):
        with pytest.raises(InvalidRequestError, match="prompts="):
            Twist(speaking("one"), speaking("two")).generate(prompts, max_tokens=5)  # type: ignore[arg-type]
