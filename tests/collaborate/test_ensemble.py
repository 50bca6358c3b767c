"""Ensembles of one vocabulary: distributions by hand, and texts that a model alone would not write."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp.collaborate import Ensemble
from offramp.collaborate.ensemble.combine import MODES, check_weights, combine, log_softmax
from offramp.collaborate.ensemble.follower import Follower
from offramp.core import SamplingParams
from offramp.errors import ContextLengthError, InvalidRequestError
from offramp.llm import LLM
from offramp.llm.loading import LoadedModel, load_model
from offramp.testing.models import chat_tokenizer, says, scripted_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)
ONE, OTHER = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6])


def rows() -> list[NDArray[np.float32]]:
    return [np.log(each).astype(np.float32) + np.float32(3) for each in (ONE, OTHER)]


@pytest.mark.parametrize(
    ("mode", "weights", "wanted"),
    [
        ("average", None, (ONE + OTHER) / 2),
        ("average", [3, 1], (3 * ONE + OTHER) / 4),
        ("product", None, np.sqrt(ONE * OTHER) / np.sqrt(ONE * OTHER).sum()),
        ("product", [3, 1], ONE**0.75 * OTHER**0.25 / (ONE**0.75 * OTHER**0.25).sum()),
        ("certainty", None, ONE),
    ],
)
def test_distributions_by_hand(mode: str, weights: list[float] | None, wanted: NDArray[np.float64]) -> None:
    row = combine(rows(), MODES[mode], check_weights(weights, 2, mode))
    assert np.exp(row) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_of_equal_members_it_is_theirs(mode: str, rng: np.random.Generator) -> None:
    row = rng.standard_normal(50).astype(np.float32)
    combined = combine([row, row.copy()], MODES[mode], np.array([0.3, 0.7]))
    assert combined == pytest.approx(log_softmax(row), abs=1e-6)


def test_what_nobody_can_draw_stays_so() -> None:
    one = np.array([0, -np.inf, -np.inf], np.float32)
    other = np.array([-np.inf, 0, -np.inf], np.float32)
    halves = np.array([0.5, 0.5])
    assert np.exp(combine([one, other], "average", halves)).tolist() == [0.5, 0.5, 0.0]
    assert combine([one, other], "product", halves).tolist() == [-np.inf] * 3


@pytest.mark.parametrize(
    ("weights", "mode"),
    [
        ([1], "average"),
        ([0, 1], "average"),
        ([1e308, 1e308], "average"),
        ([1e6, 5e-324], "product"),
        ([1, -1], "product"),
        ([1, math.nan], "average"),
        ([1, 2], "certainty"),
    ],
)
def test_impossible_weights_are_refused(weights: list[float], mode: str) -> None:
    with pytest.raises(InvalidRequestError, match="weights"):
        check_weights(weights, 2, mode)


def load(toy_path: Path) -> LoadedModel:
    return load_model(toy_path, threads=1)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.9, seed=5, top_k=20, max_tokens=12)])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_two_of_one_model_write_what_it_writes(
    mode: str, params: SamplingParams, toy_path: Path, own_cache: Path
) -> None:
    with LLM.from_loaded(load(toy_path)) as llm:
        alone = llm.generate("hello world", params)[0].outputs[0]
    together = Ensemble([load(toy_path), load(toy_path)], mode=mode).generate("hello world", params)
    assert together.token_ids == alone.token_ids
    assert (together.text, together.finish_reason) == (alone.text, alone.finish_reason)


def scaled(answer: str, factor: float) -> LoadedModel:
    script = says(("hello", answer))
    return scripted_model(lambda history, depth: script(history, depth) * np.float32(factor))


def test_the_surer_member_has_more_to_say() -> None:
    for factors, text in (((1, 3), "two"), ((3, 1), "one")):
        members = [scaled("one", factors[0]), scaled("two", factors[1])]
        assert Ensemble(members, mode="certainty").generate("hello", GREEDY).text == text
        assert Ensemble([scaled("one", factors[0]), scaled("two", factors[1])]).generate("hello", GREEDY).text == text
    weighted = Ensemble([scaled("one", 1), scaled("two", 1)], weights=[1, 9]).generate("hello", GREEDY)
    assert (weighted.text, weighted.finish_reason) == ("two", "stop")


@pytest.mark.parametrize(
    ("params", "text", "finish"),
    [
        (replace(GREEDY, stop=("w",)), "hello ", "stop"),
        (replace(GREEDY, max_tokens=1), "hello", "length"),
        (replace(GREEDY, stop=("hello",), min_tokens=2), "hello world", "stop"),
    ],
)
def test_ends_are_those_of_an_engine(params: SamplingParams, text: str, finish: str) -> None:
    members = [scripted_model(says(("x", "hello world"))) for _ in range(2)]
    output = Ensemble(members).generate("x", params)
    assert (output.text, output.finish_reason) == (text, finish)
    with LLM.from_loaded(scripted_model(says(("x", "hello world")))) as llm:
        [alone] = llm.generate("x", params)[0].outputs
    assert (output.text, output.token_ids) == (alone.text, alone.token_ids)


def test_a_follower_runs_nothing_twice_and_forgets_nothing(toy_path: Path, own_cache: Path) -> None:
    loaded = load(toy_path)
    follower, fresh = Follower(loaded.executor, 256), load(toy_path)
    text = np.array(chat_tokenizer().encode("hello world hello 12 12"), dtype=np.int32)
    other = text.copy()
    other[5:] = other[5:][::-1]
    for tokens in (text[:3], text, text, text[:4], other, text):
        assert (follower.logits(tokens) == Follower(fresh.executor, 256).logits(tokens)).all()


def test_a_text_that_fills_the_context_is_refused() -> None:
    member = scripted_model(says(("hello", "one")))
    with pytest.raises(ContextLengthError):
        Follower(member.executor, 4).logits(np.arange(5, dtype=np.int32))
    with pytest.raises(InvalidRequestError, match="prompt"):
        Ensemble([scaled("one", 1), scaled("two", 1)]).generate([5] * 100_000, GREEDY)


@pytest.mark.parametrize(
    "change", [{"n": 2}, {"logprobs": 1}, {"prompt_logprobs": 0}], ids=["n", "logprobs", "prompt_logprobs"]
)
def test_what_is_not_honoured_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(change))):
        Ensemble([scaled("one", 1), scaled("two", 1)]).generate("hello", replace(GREEDY, **change))


@pytest.mark.parametrize(
    ("prompt", "change", "message"),
    [
        ([-1], {}, "prompt holds token id -1"),
        ([1 << 40], {}, "prompt holds token id"),
        ([5, "x"], {}, "prompt="),
        ([5, 1.5], {}, "prompt="),
        (5, {}, "prompt=5"),
        ([5], {"stop_token_ids": (1 << 30,)}, "stop_token_ids holds token id"),
        ([5], {"logit_bias": {1 << 30: 1.0}}, "logit_bias holds token id"),
    ],
)
def test_ids_that_are_no_tokens_are_refused_by_name(prompt: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Ensemble([scaled("one", 1), scaled("two", 1)]).generate(prompt, replace(GREEDY, **change))


def of_another_vocabulary() -> LoadedModel:
    changed = scaled("x", 1)
    vocabulary = changed.tokenizer

    class Other:
        """The same but for one token."""

        def __getattr__(self, name: str) -> Any:
            return getattr(vocabulary, name)

        def token_bytes(self, token_id: int) -> bytes:
            return b"?" if token_id == 9 else vocabulary.token_bytes(token_id)

    return replace(changed, tokenizer=Other())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        (lambda: [scaled("one", 1)], {}, "members"),
        (lambda: [scaled("one", 1), of_another_vocabulary()], {}, "another vocabulary than toy: token 9"),
        (lambda: [scaled("one", 1)] * 2, {}, "share one executor"),
        (lambda: [scaled("one", 1), scaled("two", 1)], {"mode": "loudest"}, "mode='loudest'"),
        (lambda: [scaled("one", 1), scaled("two", 1)], {"weights": [1]}, "weights"),
    ],
)
def test_members_that_can_not_write_together_are_refused(
    members: Callable[[], list[LoadedModel]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Ensemble(members(), **options)
