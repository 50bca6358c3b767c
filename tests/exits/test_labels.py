"""What policies are told: for each token whose debt is paid, whether full depth's likeliest token was the same."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.core import Ids, SequenceKey
from offramp.engine.exit_points import ExitBatching
from offramp.model.executor import FINAL
from offramp.model.heads import HeadWeights
from offramp.testing.exits import ScriptedExits
from offramp.testing.running import Told, run
from tests.exits.exiting import NUM_LAYERS, Recorder, at_full_depth, coin, engine_with, forced, native, requests

KNOWN: Ids = np.arange(0, 260, 2, dtype=np.int32)


@pytest.fixture(scope="module")
def full() -> dict[SequenceKey, Told]:
    """Every row at full depth."""
    return run(engine_with(None, sample_rows=forced), at_full_depth(requests()))


@pytest.mark.parametrize("max_pending", [1, 2, 5, 8])
@pytest.mark.parametrize("batching", ["compact", "barrier"])
@pytest.mark.parametrize("reduced", [False, True])
def test_labels_are_those_of_full_depth(
    max_pending: int, batching: ExitBatching, reduced: bool, full: dict[SequenceKey, Told]
) -> None:
    """Tokens are forced, so that a run at full depth has the same histories."""
    recorder = Recorder(native())
    head = recorder.add_head(HeadWeights(vocab_ids=KNOWN)) if reduced else FINAL
    policy = ScriptedExits((1, 3), coin(0.5), wants_labels=True, head=head)
    engine = engine_with(policy, recorder, batching=batching, max_pending=max_pending, sample_rows=forced)
    told = run(engine, requests())
    num_exits = sum(layer < NUM_LAYERS for one in told.values() for layer in one.exit_layers)
    assert num_exits - 3 * max_pending <= len(policy.labels) <= num_exits
    for (key, output), (layer, agreed) in policy.labels.items():
        assert told[key].exit_layers[output] == layer
        mine, other = told[key].logprobs[output].top, full[key].logprobs[output].top
        assert agreed == (mine[0][0] == other[0][0])
    assert {agreed for _, agreed in policy.labels.values()} == {False, True}
    paid = engine.statistics.num_paid_debts + engine.statistics.num_forced_rows
    assert len(policy.labels) >= paid
    assert batching == "barrier" or len(policy.labels) == paid


def test_labels_and_tokens_come_from_one_head_call() -> None:
    """Four exits, then a row at full depth that takes their debts along: one call for its token and the labels."""
    policy = ScriptedExits((2,), lambda key, output, layer: output < 5, wants_labels=True)
    recorder = Recorder(native())
    run(engine_with(policy, recorder), requests(1, max_tokens=6))
    assert recorder.heads == [(FINAL, 1)] * 5 + [(FINAL, 5)]
    assert sorted(output for _, output in policy.labels) == [1, 2, 3, 4]


def test_nobody_is_told_who_does_not_want_to_be() -> None:
    policy = ScriptedExits((2,), lambda key, output, layer: output < 5)
    recorder = Recorder(native())
    run(engine_with(policy, recorder), requests(1, max_tokens=6))
    assert recorder.heads == [(FINAL, 1)] * 6
    assert policy.labels == {}


@pytest.mark.parametrize("batching", ["compact", "barrier"])
def test_propagated_tokens_have_no_labels(batching: ExitBatching) -> None:
    policy = ScriptedExits((1, 3), coin(0.5), fill="propagate", wants_labels=True)
    run(engine_with(policy, batching=batching), requests())
    assert policy.labels == {}
