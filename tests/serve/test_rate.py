"""When a refused request may come again."""

from __future__ import annotations

import pytest

from offramp.serve.rate import MOST_SECONDS, UNKNOWN_SECONDS, WINDOW, EndRate


def rate(*ends: float) -> EndRate:
    noted = EndRate()
    for end in ends:
        noted.note(end)
    return noted


@pytest.mark.parametrize(
    ("ends", "num_queued", "now", "seconds"),
    [
        ((), 100, 0.0, UNKNOWN_SECONDS),
        ((0.0,), 100, 100.0, UNKNOWN_SECONDS),  # too long ago
        (tuple(float(n) for n in range(10)), 16, 10.0, 8.0),  # one a second
        (tuple(n / 10 for n in range(10)), 100, 1.0, 5.0),
        (tuple(n / 10 for n in range(10)), 100, 2.0, 10.0),  # and then none for a second
        ((9.0, 9.5), 1, 10.0, 1.0),
        ((0.0,), 100, 50.0, MOST_SECONDS),
    ],
)
def test_half_of_the_queue_will_have_gone(ends: tuple[float, ...], num_queued: int, now: float, seconds: float) -> None:
    assert rate(*ends).retry_after(num_queued, now) == pytest.approx(seconds)


def test_only_the_latest_count() -> None:
    slow, quick = [float(n) for n in range(30)], [30 + n / 10 for n in range(WINDOW)]
    now = 30 + WINDOW / 10
    assert rate(*slow, *quick).retry_after(100, now) == pytest.approx(5.0)
