"""The best weights of a training: which count, and what an interruption leaves of them. Needs torch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.train.clock import ComputeClock  # noqa: E402
from offramp.train.drafter.best import Best, BestWeights  # noqa: E402
from offramp.train.exits.work import WorkFolder, open_work  # noqa: E402
from offramp.train.state import TrainingState  # noqa: E402


def a_state() -> TrainingState:
    tensor = torch.zeros(2, requires_grad=True)
    return TrainingState({"w": tensor}, torch.optim.AdamW([tensor]), ComputeClock(1))


def run_to(state: TrainingState, best: BestWeights, steps: range) -> None:
    for step in steps:
        state.step = step
        with torch.no_grad():
            state.trained["w"].fill_(step)
        best.measure(100 * step)


def measured(state: TrainingState, work: WorkFolder, said: list[str] | None = None) -> BestWeights:
    """Of the two draft tokens, the rates after steps 1 to 5."""
    rates = {1: [0.1, 0.5], 2: [0.5, 0.5], 3: [0.5, 0.4], 4: [0.5, 0.5], 5: [0.3, 0.3]}
    return BestWeights(state, work, lambda: rates[state.step], (said or []).append)


def test_the_weights_with_the_longest_drafts_stay(tmp_path: Path) -> None:
    state, work = a_state(), open_work(tmp_path, {})
    best = measured(state, work)
    assert not best.measured
    run_to(state, best, range(1, 6))
    assert best.measured
    assert best.take() == Best(4, 0.75), "of equal ones the latest"
    assert state.trained["w"].tolist() == [4.0, 4.0]
    curve = work.state["curve"]
    assert [(point["step"], point["tokens"]) for point in curve] == [(n, 100 * n) for n in range(1, 6)]
    assert curve[1]["rates"] == [0.5, 0.5]


def test_what_lies_ahead_of_a_resumed_training_does_not_count(tmp_path: Path) -> None:
    state, work = a_state(), open_work(tmp_path, {})
    run_to(state, measured(state, work), range(1, 5))
    again = a_state()
    again.step = 3  # of its checkpoint; the best lies at 4
    best = measured(again, open_work(tmp_path, {}))
    assert not best.measured
    run_to(again, best, range(5, 6))
    assert best.take() == Best(5, pytest.approx(0.39))


def test_a_resumed_training_keeps_what_was_best(tmp_path: Path) -> None:
    state, work = a_state(), open_work(tmp_path, {})
    run_to(state, measured(state, work), range(1, 5))
    again = a_state()
    again.step = 4
    best = measured(again, open_work(tmp_path, {}))
    assert best.measured
    run_to(again, best, range(5, 6))
    assert best.take().step == 4
    assert again.trained["w"].tolist() == [4.0, 4.0]
