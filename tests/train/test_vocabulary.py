"""How many tokens an exit's head should know. Needs torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train.decoder import read_decoder  # noqa: E402
from offramp.train.layerskip import vocabulary  # noqa: E402
from offramp.train.layerskip.batches import Example  # noqa: E402
from offramp.train.layerskip.vocabulary import candidate_sizes, choose_vocabularies, leaving_share  # noqa: E402


def test_sizes_double_up_to_all() -> None:
    assert candidate_sizes(1500) == [256, 512, 1024, 1500]
    assert candidate_sizes(256) == [256]
    assert candidate_sizes(9) == [9]


def test_as_many_leave_as_stay_within_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ERRORS", 0.1)  # one of ten
    probability = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1], np.float32)
    right = np.array([1, 1, 0, 1, 1, 0, 1, 1, 1, 1], bool)
    assert leaving_share(probability, right) == 0.5
    assert leaving_share(probability[::-1].copy(), right[::-1].copy()) == 0.5
    assert leaving_share(probability, ~right) == 0.1
    assert leaving_share(probability, np.zeros(10, bool)) == 0.1


def share(size: int, leaving: float) -> tuple[np.ndarray, np.ndarray]:
    """1000 tokens of which this share leaves."""
    right = np.arange(1000) < leaving * 1000
    return np.linspace(1, 0.1, 1000, dtype=np.float32), right


@pytest.mark.parametrize(("small", "large", "best"), [(0.5, 0.5, 32), (0.5, 0.9, 64), (0.5, 0.501, 32)])
def test_more_tokens_are_known_only_where_more_leave(
    monkeypatch: pytest.MonkeyPatch, small: float, large: float, best: int
) -> None:
    monkeypatch.setattr(vocabulary, "SMALLEST", 32)
    found = {(3, 32): share(32, small), (3, 64): share(64, large)}
    monkeypatch.setattr(vocabulary, "_said", lambda *_: found)
    decoder = read_decoder(toy_source(toy_config(), seed=4))
    assert choose_vocabularies(decoder, [], (), np.arange(64, dtype=np.int32), [3], 64) == {3: best}


def test_heads_are_judged_by_what_they_would_say() -> None:
    decoder = read_decoder(toy_source(toy_config(), seed=4))
    noise = np.random.default_rng(0)
    examples = [Example((1, 2, *noise.integers(3, 260, 3)), tuple(noise.integers(3, 260, 8))) for _ in range(12)]
    ranked = noise.permutation(260).astype(np.int32)
    found = vocabulary._said(decoder, examples, (1, 2), ranked, [1, 3], [40, 260], 64)
    agreed = {key: right.mean() for key, (_, right) in found.items()}
    assert all(len(top) == 12 * 8 for top, _ in found.values())
    assert 0 < agreed[3, 40] < agreed[3, 260] > agreed[1, 260]
    (small, _), (large, _) = found[3, 40], found[3, 260]
    assert small.mean() > large.mean()  # fewer tokens to share the probability


def test_an_exit_before_a_layer_that_adds_nothing_always_agrees() -> None:
    decoder = read_decoder(toy_source(toy_config(), seed=4))
    examples = [Example((1, 2, 3), (4, 5, 6))]
    ranked = np.arange(260, dtype=np.int32)[::-1].copy()
    decoder.layers[3].projections["o"].weight.zero_()
    decoder.layers[3].projections["down"].weight.zero_()  # the last layer adds nothing
    ((_, right),) = vocabulary._said(decoder, examples, (1,), ranked, [3], [260], 64).values()
    assert right.all()
