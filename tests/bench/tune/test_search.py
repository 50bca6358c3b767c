"""The search finds what is faster, keeps its budget, and recommends nothing that is only lucky."""

from __future__ import annotations

from typing import Any

import pytest

from offramp.bench.tune.halving import LEAST_TURNS
from offramp.bench.tune.rounds import Rounds
from offramp.bench.tune.search import Found, rounds_of, search
from offramp.errors import InvalidRequestError
from tests.bench.tune.simulated import SimulatedStand, by_words, space

Run = tuple[Found, Rounds, SimulatedStand]


def searched(speeds: dict[str, float], *, changes: dict[str, Any] | None = None, **settings: Any) -> Run:
    stand = SimulatedStand(by_words(speeds), **settings)
    within = space(**(changes or {}))
    rounds = rounds_of(within, stand, settings.get("num_prompts", 60))
    return search(within, rounds, lambda text: None), rounds, stand


def luckiest(rounds: Rounds) -> float:
    """The best ratio of any method, as its rounds had it: what a search would go by that does not confirm."""
    return max(rounds.ratio(name) for name in ("auto", "ngram", "suffix"))


def recommended(count: int, **settings: Any) -> tuple[int, int]:
    """Of so many searches among equals: how often one is recommended, and how often one seemed faster."""
    runs = [searched({}, seed=seed, **settings) for seed in range(count)]
    return sum(found.gain is not None for found, _, _ in runs), sum(luckiest(rounds) > 1 for _, rounds, _ in runs)


def test_among_equals_plain_decoding_wins() -> None:
    wrongly, seemingly = recommended(30, seconds=150.0)
    assert wrongly <= 6, "the 99.9 % quantile of 30 at one in twenty"
    assert seemingly >= 15, "the best of three seems faster more often than not: the control"


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"seconds": 120.0}, {"noise": 0.1}, {"num_prompts": 3}, {"seconds": 600.0}])
def test_among_equals_plain_decoding_wins_nearly_always(settings: dict[str, Any]) -> None:
    wrongly, seemingly = recommended(200, **settings)
    assert wrongly <= 21, "the 99.9 % quantile of 200 at one in twenty"
    assert seemingly >= 100


def test_a_faster_one_is_found() -> None:
    runs = [searched({"suffix": 1.1}, seed=seed) for seed in range(8)]
    assert sum(found.method.name.split()[0] == "suffix" for found, _, _ in runs) >= 7
    for found, _, _ in runs:
        if found.gain is not None:
            assert found.gain.low > 1
            assert 1.05 < found.gain.ratio < 1.2
            assert found.gain.turns >= LEAST_TURNS


def test_what_is_tuned_stays_only_where_it_is_surely_better() -> None:
    found, _, _ = searched({"suffix": 1.2, "max_draft=4": 1.3})
    assert found.method.options == {"draft": "suffix", "max_draft": 4}
    assert found.simple.name == "suffix"
    assert found.over_simple is not None
    assert found.over_simple.low > 1
    untouched, _, _ = searched({"suffix": 1.2})
    assert untouched.method.options == {"draft": "suffix"}
    assert untouched.over_simple is None


def test_fewer_threads_are_found_for_plain_decoding_too() -> None:
    found, _, _ = searched({"threads=1": 1.3, "auto": 0.8, "ngram": 0.7, "suffix": 0.9})
    assert (found.method.options, found.simple.name) == ({"draft": "off", "threads": 1}, "plain")


def test_limits_of_a_batch_are_found() -> None:
    changes = {"streams": 8, "num_cpus": 1}
    found, _, stand = searched({"auto": 1.3, "max_num_batched_tokens=256": 1.3}, changes=changes, seconds=3000.0)
    assert found.method.options == {"draft": "auto", "max_num_batched_tokens": 256}
    assert {len(prompts) % 8 for _, prompts in stand.turns} == {0}


@pytest.mark.parametrize("seconds", [150.0, 600.0, 2000.0])
def test_the_budget_is_kept(seconds: float) -> None:
    for speeds in ({}, {"suffix": 1.3}, {"auto": 0.2, "suffix": 1.3}):
        _, rounds, _ = searched(speeds, seconds=seconds)
        assert rounds.seconds_left() > -0.02 * seconds


def test_confirming_takes_most_of_what_is_left() -> None:
    _, rounds, _ = searched({"suffix": 1.3})
    assert rounds.seconds_left() < 60


def test_a_budget_for_nothing_is_refused_with_what_it_takes() -> None:
    with pytest.raises(InvalidRequestError, match=r"trying 3 methods takes about 0\.\d minutes here") as caught:
        searched({}, seconds=10.0)
    assert "--minutes" in caught.value.hint
    needed = float(caught.value.message.split("about ")[1].split()[0])
    found, _, _ = searched({"suffix": 1.5}, seconds=60 * needed + 1)
    assert found.skipped, "there was time for the structures alone"


def test_after_a_rung_the_worse_half_is_gone() -> None:
    packs = {"exits": "smollm2-135m", "drafter": "d", "draft_model": "m"}
    found, rounds, stand = searched({"eagle": 1.5, "ngram": 1.2, "auto": 0.5}, changes=packs)
    assert found.method.name.startswith("eagle")
    assert rounds.num_prompts("auto") < rounds.num_prompts("ngram") < rounds.num_prompts("eagle")
    assert stand.running <= {"plain", "eagle", "ngram", found.method.name}


def test_a_method_that_breaks_its_promise_is_never_recommended() -> None:
    for wrong in ("tokens", "start", "prompt"):
        found, rounds, _ = searched({"suffix": 2.0, "ngram": 1.3}, wrong={"suffix": wrong})
        assert found.method.name.split()[0] == "ngram"
        assert list(rounds.faults) == ["suffix"]


def test_where_all_break_plain_decoding_is_left() -> None:
    found, rounds, _ = searched({}, wrong=dict.fromkeys(("auto", "ngram", "suffix"), "tokens"))
    assert (found.method.name, found.gain) == ("plain", None)
    assert len(rounds.faults) == 3


def test_other_weights_may_win_and_are_told_apart() -> None:
    found, rounds, _ = searched({"q4": 1.4}, changes={"formats": ("q8", "q4")})
    assert found.method.flags.weights == "q4"
    assert found.method.name in rounds.likeness
