"""The early-exit loss against a loss written out in full; dropout; sampled vocabularies. Needs torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train.decoder import Batch, Decoder, read_decoder  # noqa: E402
from offramp.train.layerskip.loss import STAY, Leaving, early_exit_loss, step_vocabulary  # noqa: E402

NO_DROPOUT, ALL_DROPPED = np.zeros(4), np.ones(4)
V = 260


@pytest.fixture
def decoder() -> Decoder:
    return read_decoder(toy_source(toy_config(), seed=4))


@pytest.fixture
def batch() -> Batch:
    ids = torch.randint(0, V, (3, 12), generator=torch.Generator().manual_seed(0))
    targets = torch.where(torch.arange(12) >= 5, ids.roll(-1, dims=1), -1)
    return Batch(torch.tensor([4, 5, 6]), ids, targets)


def whole(batch: Batch) -> object:
    """Every id takes part."""
    noise = np.random.default_rng(0)
    return step_vocabulary(np.arange(V, dtype=np.int32), batch.targets[batch.targets >= 0], V, 0, noise)


def run(
    decoder: Decoder,
    batch: Batch,
    weights: dict[int, float],
    rates: np.ndarray,
    seed: int = 0,
    leaving: Leaving = STAY,
) -> object:
    vocabulary, noise = whole(batch), np.random.default_rng(seed)
    return early_exit_loss(decoder, batch, vocabulary, weights, rates, noise, leaving)  # type: ignore[arg-type]


def test_it_is_the_weighted_cross_entropy_of_exits(decoder: Decoder, batch: Batch) -> None:
    loss, by_layer = run(decoder, batch, {2: 0.25, 4: 0.75}, NO_DROPOUT)  # type: ignore[misc]
    x = decoder.embed(batch)
    expected = {}
    for layer in range(4):
        x = decoder.run_layer(layer, x, batch)
        logs = (decoder.norm(x, decoder.final_norm) @ decoder.embedding.t()).log_softmax(dim=1)[3:]
        wanted = batch.targets.reshape(-1)
        expected[layer + 1] = float(-logs[wanted >= 0, wanted[wanted >= 0]].mean())
    assert by_layer == pytest.approx({2: expected[2], 4: expected[4]}, rel=1e-5)
    assert float(loss) == pytest.approx(0.25 * expected[2] + 0.75 * expected[4], rel=1e-5)


@pytest.mark.parametrize("prefix", [3, 0])
def test_samples_that_skip_every_layer_stay_as_they_were(decoder: Decoder, batch: Batch, prefix: int) -> None:
    batch = Batch(batch.prefix[:prefix], batch.tokens, batch.targets)
    _, by_layer = run(decoder, batch, {1: 0.5, 4: 0.5}, ALL_DROPPED)  # type: ignore[misc]
    logs = (decoder.norm(decoder.embed(batch), decoder.final_norm) @ decoder.embedding.t()).log_softmax(dim=1)[prefix:]
    wanted = batch.targets.reshape(-1)
    assert by_layer[1] == by_layer[4] == pytest.approx(float(-logs[wanted >= 0, wanted[wanted >= 0]].mean()), rel=1e-5)


def test_a_sample_does_not_feel_what_others_skip(decoder: Decoder, batch: Batch) -> None:
    """With a rate of a half some seed drops exactly the first sample at a layer; the others' loss is as without."""
    alone = Batch(batch.prefix, batch.tokens[1:], batch.targets[1:])
    _, expected = run(decoder, alone, {1: 0.5, 4: 0.5}, NO_DROPOUT)  # type: ignore[misc]
    rates = np.array([0.5, 0, 0, 0])
    seed = next(s for s in range(99) if (np.random.default_rng(s).random(6)[3:] < 0.5).tolist() == [True, False, False])
    masked = Batch(batch.prefix, batch.tokens, torch.cat([torch.full((1, 12), -1), batch.targets[1:]]))
    _, found = run(decoder, masked, {1: 0.5, 4: 0.5}, rates, seed)  # type: ignore[misc]
    assert found == pytest.approx(expected, rel=1e-5)


def test_tokens_that_leave_owe_deeper_layers_their_projected_k_and_v(decoder: Decoder, batch: Batch) -> None:
    """Written out: rows that leave keep their state, so that deeper layers project K/V from it and nothing else."""
    _, without = run(decoder, batch, {2: 0.5, 4: 0.5}, NO_DROPOUT)  # type: ignore[misc]
    x = decoder.embed(batch)
    for layer in range(2):
        x = decoder.run_layer(layer, x, batch)
    rows, wanted = batch.target_rows, batch.target_ids

    def surprises(states: torch.Tensor) -> torch.Tensor:
        logs = (decoder.norm(states, decoder.final_norm) @ decoder.embedding.t()).log_softmax(dim=1)
        return -logs[rows, wanted]

    level = float(surprises(x).median()) + 1e-4
    _, found = run(decoder, batch, {2: 0.5, 4: 0.5}, NO_DROPOUT, leaving=Leaving(math.exp(-level), 1.0))  # type: ignore[misc]
    gone = rows[surprises(x) <= level]
    assert 0 < len(gone) < len(rows)
    for layer in (2, 3):
        y = decoder.run_layer(layer, x, batch)
        y[gone] = x[gone]
        x = y
    stays = ~torch.isin(rows, gone)
    assert found[2] == pytest.approx(without[2], rel=1e-5)
    assert found[4] == pytest.approx(float(surprises(x)[stays].mean()), rel=1e-5)
    assert found[4] != pytest.approx(without[4], rel=1e-4)


def test_samples_that_may_not_leave_do_not(decoder: Decoder, batch: Batch) -> None:
    at_once = Leaving(1e-9, 0.5)
    seed = next(s for s in range(99) if (np.random.default_rng(s).random(3) < 0.5).tolist() == [True, True, False])
    _, found = run(decoder, batch, {2: 0.5, 4: 0.5}, NO_DROPOUT, seed, at_once)  # type: ignore[misc]
    stays = Batch(batch.prefix, batch.tokens[2:], batch.targets[2:])
    _, alone = run(decoder, stays, {2: 0.5, 4: 0.5}, NO_DROPOUT)  # type: ignore[misc]
    assert found[4] == pytest.approx(alone[4], rel=1e-5)


def test_drawn_ids_stand_for_the_rest_of_the_vocabulary() -> None:
    logits = np.random.default_rng(1).standard_normal(1000)
    known, targets = np.arange(100, dtype=np.int32), torch.tensor([5, 700])
    whole = np.exp(logits).sum()
    sums, plain = [], []
    for seed in range(300):
        some = step_vocabulary(known, targets, 1000, 90, np.random.default_rng(seed))
        assert {5, 700} <= set(some.ids.tolist())
        assert len(some.ids) == 101 + 90
        chosen = logits[some.ids.numpy()]
        sums.append(np.exp(chosen + some.corrections.numpy()).sum())
        plain.append(np.exp(chosen).sum())
    assert abs(np.mean(sums) / whole - 1) < 4 * np.std(sums) / whole / np.sqrt(300)
    assert np.mean(plain) < 0.5 * whole  # without corrections it would be another sum


def test_gradients_reach_what_is_trained_and_nothing_else(decoder: Decoder, batch: Batch) -> None:
    from offramp.train.low_rank import train_low_rank

    trained = train_low_rank(decoder, rank=3, seed=0)
    loss, _ = run(decoder, batch, {2: 0.5, 4: 0.5}, NO_DROPOUT)  # type: ignore[misc]
    loss.backward()
    with_gradient = {name for name, tensor in trained.items() if tensor.grad is not None and tensor.grad.any()}
    assert with_gradient == {name for name in trained if not name.endswith(".a")}  # a's wait until b is not 0
    assert not decoder.embedding.requires_grad
    assert not any(p.weight.requires_grad for layer in decoder.layers for p in layer.projections.values())
