from __future__ import annotations

import pytest

from offramp.calibrate.sizes import check_enough, largest_loss, num_prompts, num_tuning
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import hoeffding_bentkus_p, required_prompts


def test_a_quarter_tunes_up_to_a_hundred() -> None:
    assert [num_tuning(count) for count in (0, 3, 4, 80, 400, 2000)] == [0, 0, 1, 20, 100, 100]
    for needed in (4, 60, 299, 300, 301, 896):
        count = num_prompts(needed)
        assert count - num_tuning(count) >= needed > count - 1 - num_tuning(count - 1)


@pytest.mark.parametrize(("risk", "fewest", "usual"), [(0.05, 79, 458), (0.02, 202, 996)])
def test_too_few_prompts_say_how_many_it_takes(risk: float, fewest: int, usual: int) -> None:
    """60 and 358 to test for a risk of 0.05, 896 at half of 0.02, and those that tune."""
    check_enough(fewest, risk, 0.05)
    for count in (0, 1, 3, 59):
        with pytest.raises(InvalidRequestError, match=f"{count} prompts are too few") as refusal:
            check_enough(count, risk, 0.05)
    assert str(fewest) in refusal.value.hint
    assert str(usual) in refusal.value.hint
    assert required_prompts(risk, 0.05, risk / 2) + 100 == usual


def test_what_is_promised_suffices() -> None:
    for risk in (0.01, 0.05, 0.3, 0.9):
        for delta in (0.01, 0.1, 0.9):
            with pytest.raises(InvalidRequestError) as refusal:
                check_enough(1, risk, delta)
            fewest = int(refusal.value.hint.split()[2])
            check_enough(fewest, risk, delta)


@pytest.mark.parametrize("count", [60, 300, 1000])
def test_the_largest_loss_passes_and_more_does_not(count: int) -> None:
    loss = largest_loss(count, 0.05, 0.05)
    assert (
        hoeffding_bentkus_p(loss * count, count, 0.05) <= 0.05 < hoeffding_bentkus_p((loss + 1e-3) * count, count, 0.05)
    )
