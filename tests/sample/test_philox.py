"""The generator against the published known answers, and the uniforms made of it."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.sample.philox import philox4x32, seed_key
from offramp.sample.race import NoiseKey, uniforms

ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [  # counter, key, output: Random123's kat_vectors, philox4x32 10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], output: tuple[int, int, int, int]
) -> None:
    assert tuple(int(word) for word in philox4x32(counter, key)) == output


def test_vectors_equal_single_counters() -> None:
    ids = np.arange(50)
    together = philox4x32((ids, 7, 1, 0), (3, 4))
    for i in ids:
        assert [int(word) for word in philox4x32((i, 7, 1, 0), (3, 4))] == [int(word[i]) for word in together]


def test_seed_becomes_low_then_high_word() -> None:
    assert seed_key(0x0123456789ABCDEF) == (0x89ABCDEF, 0x01234567)


def test_uniforms_are_the_top_52_bits_with_a_half_added() -> None:
    key = NoiseKey(seed=0x299F31D0_A4093822, position=0x85A308D3, choice=0x13198A2E)
    w0, w1, _, _ = (int(word) for word in philox4x32((5, key.position, key.choice, 0), (0xA4093822, 0x299F31D0)))
    k = ((w0 << 32) | w1) >> 12
    u = float(uniforms(key, np.array([5]))[0])
    assert u * 2**53 == 2 * k + 1


def test_uniforms_stay_inside_the_open_interval() -> None:
    u = uniforms(NoiseKey(seed=1, position=0, choice=0), np.arange(100_000))
    assert u.min() > 0.0
    assert u.max() < 1.0
    assert np.all(u * 2.0**53 % 2 == 1)
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * len(u))
