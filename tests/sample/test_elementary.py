"""exp and log against the library's, and at their edges."""

from __future__ import annotations

import numpy as np

from offramp.sample import elementary


def test_exp_is_accurate() -> None:
    x = -np.random.default_rng(0).exponential(60, 20_000)
    truth = np.exp(np.maximum(x, -700.0))
    assert np.max(np.abs(elementary.exp(np.maximum(x, -700.0)) / truth - 1)) < 1e-15


def test_exp_at_its_edges() -> None:
    found = elementary.exp(np.array([0.0, -0.0, -708.0, -708.1, -1e300, -np.inf]))
    assert list(found[[0, 1, 3, 4, 5]]) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert abs(found[2] / np.exp(-708.0) - 1) < 1e-15


def test_log_is_accurate_even_next_to_one() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate(
        [random.random(20_000) + 2.0**-53, random.exponential(5, 20_000), 1 - 2.0 ** -np.arange(2, 54.0)]
    )
    error = np.abs(elementary.log(x) - np.log(x))
    assert np.max(error / np.maximum(np.abs(np.log(x)), 2.0**-60)) < 2e-15


def test_log_of_the_extreme_uniforms() -> None:
    assert elementary.log(np.array([1.0]))[0] == 0.0
    assert elementary.log(np.array([1 - 2.0**-53]))[0] == -(2.0**-53)
    assert abs(elementary.log(np.array([2.0**-53]))[0] + 53 * np.log(2)) < 1e-14
