"""How many tokens to draft where drafting itself takes time: pure arithmetic.

Of `n` sequences that draft `k` tokens each, of which one stands with probability `rate` given the one before, a step
brings `n (1 + rate + ... + rate^k)` tokens and takes `k` rounds of drafting and a verification of `n (1 + k)` rows.
Sequences beside them bring a token each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LOOK_AHEAD = 3
"""Lengths behind the best one after which no better is looked for: costs have steps, but small ones."""

Seconds = Callable[[int], float]
"""Tokens drafted for each sequence -> what the step's verification takes, whatever runs beside included."""


@dataclass(frozen=True, slots=True)
class Payoff:
    """The best length, 0 for none. Prices are in tokens: what the time is worth at the goodput reached.

    They are means over the length: with the last token's alone, a step of the costs behind it would end every draft.
    """

    num_tokens: int
    goodput: float  # tokens a second
    verify_price: float  # of one sequence's next token that is drafted already
    draft_price: float  # of drafting one and verifying it


def best_payoff(
    *,
    num_sequences: int,
    rate: float,
    most: int,
    round_seconds: float,
    verify: Seconds,
    num_beside: int = 0,
    least_gain: float = 0.0,
) -> Payoff:
    """The number of tokens, at most `most`, with the most expected tokens a second.

    None where the best gains less than a share of `least_gain` over none.
    """
    expected = float(num_beside + num_sequences)
    best, best_count = (1.0 + least_gain) * expected / verify(0), 0
    reach = 1.0
    for count in range(1, most + 1):
        reach *= rate
        expected += num_sequences * reach
        goodput = expected / (count * round_seconds + verify(count))
        if goodput > best:
            best, best_count = goodput, count
        elif count >= best_count + LOOK_AHEAD:
            break
    counted = max(1, best_count)
    more = max(0.0, verify(counted) - verify(0)) / (counted * num_sequences)
    return Payoff(best_count, best, best * more, best * (more + round_seconds / num_sequences))
