"""A batch in parts: the gradient and the losses of the whole. Needs torch."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.testing.toy import toy_config, toy_source  # noqa: E402
from offramp.train.decoder import Batch, read_decoder  # noqa: E402
from offramp.train.layerskip.loss import early_exit_loss, step_vocabulary  # noqa: E402
from offramp.train.layerskip.shards import split_batch  # noqa: E402
from offramp.train.low_rank import train_low_rank  # noqa: E402
from offramp.train.workers import Workers  # noqa: E402

V = 260


def a_batch(samples: int) -> Batch:
    """Samples with different numbers of targets."""
    ids = torch.randint(0, V, (samples, 12), generator=torch.Generator().manual_seed(0))
    first = torch.arange(samples)[:, None] + 3
    return Batch(torch.tensor([4, 5, 6]), ids, torch.where(torch.arange(12) >= first, ids.roll(-1, dims=1), -1))


@pytest.mark.parametrize("count", [2, 3])
def test_parts_add_up_to_the_whole(count: int) -> None:
    decoder, batch = read_decoder(toy_source(toy_config(), seed=4)), a_batch(5)
    trained = list(train_low_rank(decoder, rank=3, seed=0).values())
    vocabulary = step_vocabulary(np.arange(V, dtype=np.int32), batch.target_ids, V, 0, np.random.default_rng(0))

    def loss_of(number: int, part: Batch) -> tuple[torch.Tensor, dict[int, float]]:
        return early_exit_loss(decoder, part, vocabulary, {2: 0.3, 4: 0.7}, np.zeros(4), np.random.default_rng(number))

    found = []
    for workers in (1, count):
        with closing(Workers(workers)) as threads:
            found.append(threads.gradients(split_batch(batch, workers), trained, loss_of))
    (whole, losses), (summed, mean_losses) = found
    assert mean_losses == pytest.approx(losses, rel=1e-5)
    for one, other in zip(whole, summed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)
    assert any(gradient.any() for gradient in whole)


def test_no_part_is_empty() -> None:
    parts = split_batch(a_batch(3), 8)
    assert [len(part.tokens) for part in parts] == [1, 1, 1]
    assert sorted(len(part.target_rows) for part in parts) == [7, 8, 9]


def test_a_batch_without_targets_teaches_nothing() -> None:
    """Of a drafter that knows few tokens: none of a short batch's may be among them."""
    weight = torch.ones(3, requires_grad=True)
    part = SimpleNamespace(target_rows=torch.zeros(0, dtype=torch.long))
    with closing(Workers(2)) as threads:
        [gradient], losses = threads.gradients(
            [part, part], [weight], lambda number, part: (0 * weight.sum(), {1: 0.0})
        )
    assert (gradient.tolist(), losses) == ([0.0] * 3, {1: 0.0})
