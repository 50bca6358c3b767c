"""The losses between two distributions, against sums in float64. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.errors import InvalidRequestError  # noqa: E402
from offramp.train.drafter.distill import DIVERGENCES, DistributionLoss, target_distribution  # noqa: E402
from offramp.train.drafter.recipe import LOSS_NAMES, LossName, loss_name  # noqa: E402

Floats = NDArray[np.float64]


def kl(p: Floats, q: Floats) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True) if a > 0)


SLOW: dict[LossName, Callable[[Floats, Floats], float]] = {
    "forward_kl": kl,
    "reverse_kl": lambda p, q: kl(q, p),
    "jsd": lambda p, q: (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2,
    "tvd": lambda p, q: sum(max(0.0, b - a) for a, b in zip(p.tolist(), q.tolist(), strict=True)),
}


def softmax(z: Floats) -> Floats:
    e: Floats = np.exp(z - z.max())
    return e / e.sum()


def pairs(rng: np.random.Generator, num_ids: int = 9) -> tuple[Floats, Floats]:
    """Probabilities and logits, far apart in some rows; [rows, ids]."""
    p = np.stack([softmax(scale * rng.standard_normal(num_ids)) for scale in (0.3, 1.0, 2.0, 5.0)])
    return p, np.stack([scale * rng.standard_normal(num_ids) for scale in (0.5, 2.0, 1.0, 4.0)])


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_values_and_gradients_are_those_of_plain_sums(name: LossName, rng: np.random.Generator) -> None:
    p, z = pairs(rng)
    apart, by_logits = DIVERGENCES[name](torch.from_numpy(p), torch.from_numpy(z).log_softmax(dim=1))
    step = 1e-6
    for row in range(len(p)):
        assert apart[row].item() == pytest.approx(SLOW[name](p[row], softmax(z[row])), rel=1e-9, abs=1e-12)
        for column in range(p.shape[1]):
            near = [z[row].copy() for _ in range(2)]
            near[0][column] -= step
            near[1][column] += step
            below, above = (SLOW[name](p[row], softmax(each)) for each in near)
            assert by_logits[row, column].item() == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_what_is_said_too_much_is_said_less(name: LossName, rng: np.random.Generator) -> None:
    p, z = pairs(rng)
    log_q = torch.from_numpy(z).log_softmax(dim=1)
    _, by_logits = DIVERGENCES[name](torch.from_numpy(p), log_q)
    ratios = log_q.exp().numpy() / p
    rows = np.arange(len(p))
    assert (by_logits.numpy()[rows, ratios.argmax(axis=1)] > 0).all()
    assert (by_logits.numpy()[rows, ratios.argmin(axis=1)] < 0).all()


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_equal_distributions_are_not_apart(name: LossName, rng: np.random.Generator) -> None:
    _, z = pairs(rng)
    log_q = torch.from_numpy(z).log_softmax(dim=1)
    apart, by_logits = DIVERGENCES[name](log_q.exp(), log_q)
    assert apart.abs().max() < 1e-12
    assert by_logits.abs().max() < 1e-12


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_what_one_of_them_rules_out_is_finite(name: LossName) -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    log_q = torch.tensor([[-300.0, 0.0, -300.0], [0.0, -300.0, -300.0]]).log_softmax(dim=1)  # f32: exp is 0
    apart, by_logits = DIVERGENCES[name](p, log_q)
    assert apart.isfinite().all()
    assert (apart > 0.5).all()
    assert by_logits.isfinite().all()
    if name == "tvd":
        torch.testing.assert_close(apart, torch.ones(2))
    if name == "jsd":
        torch.testing.assert_close(apart, torch.full((2,), math.log(2)))


@pytest.mark.parametrize("name", LOSS_NAMES)
@pytest.mark.parametrize("corrected", [False, True])
def test_the_loss_over_a_head_and_its_gradient_are_those_of_plain_autograd(name: LossName, corrected: bool) -> None:
    noise = torch.Generator().manual_seed(0)
    x = torch.randn(300, 16, generator=noise, requires_grad=True)  # more rows than are held at once
    head, p = torch.randn(50, 16, generator=noise), torch.rand(300, 50, generator=noise).softmax(dim=1)
    corrections = torch.rand(50, generator=noise) if corrected else None
    weights = torch.rand(300, generator=noise)
    fast = DistributionLoss.apply(x, head, corrections, p, weights, DIVERGENCES[name])
    logits = x @ head.t() if corrections is None else x @ head.t() + corrections
    q = logits.softmax(dim=1)
    middle = (p + q) / 2
    terms = {
        "forward_kl": p * (p / q).log(),
        "reverse_kl": q * (q / p).log(),
        "jsd": (p * (p / middle).log() + q * (q / middle).log()) / 2,
        "tvd": (p - q).abs() / 2,
    }
    slow = (terms[name].sum(dim=1) * weights).sum()
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, x)[0] for loss in (fast * 3, slow * 3)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_drawn_tokens_stand_for_others_like_them(name: LossName) -> None:
    """Where all seldom tokens are alike, a few of them, corrected, give the loss over all, and its gradient."""
    noise = torch.Generator().manual_seed(3)
    known, seldom = torch.randn(5, 8, generator=noise), torch.randn(1, 8, generator=noise)
    x, y = torch.randn(6, 8, generator=noise, requires_grad=True), torch.randn(6, 8, generator=noise)
    whole = torch.cat([known, seldom.expand(40, -1)])
    some, corrections = (
        torch.cat([known, seldom.expand(10, -1)]),
        torch.cat([torch.zeros(5), torch.full((10,), math.log(4))]),
    )
    found = []
    for head, added in ((whole, None), (some, corrections)):
        wanted = target_distribution(y, head, added)
        loss = DistributionLoss.apply(x, head, added, wanted, torch.ones(6), DIVERGENCES[name])
        found.append((loss, torch.autograd.grad(loss, x)[0]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    wrong = DistributionLoss.apply(x, some, None, target_distribution(y, some), torch.ones(6), DIVERGENCES[name])
    assert abs(wrong.item() - found[0][0].item()) > 1e-3, "without corrections it is another loss"


def test_losses_go_by_their_names() -> None:
    assert tuple(DIVERGENCES) == LOSS_NAMES == ("forward_kl", "reverse_kl", "jsd", "tvd")
    assert loss_name("tvd") == "tvd"
    with pytest.raises(InvalidRequestError, match="--loss 'mse' is impossible") as refusal:
        loss_name("mse")
    assert refusal.value.hint == "it takes forward_kl, reverse_kl, jsd, tvd"
