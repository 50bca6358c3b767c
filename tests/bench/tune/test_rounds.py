"""Rounds are fair, and a method that breaks its promise has no further turn."""

from __future__ import annotations

import pytest

from offramp.bench.tune.candidates import structures
from offramp.bench.tune.rounds import Rounds
from offramp.bench.tune.search import rounds_of
from offramp.errors import InvalidRequestError, OfframpError
from tests.bench.tune.simulated import SimulatedStand, by_words, space


def started(
    num_prompts: int = 10, wrong: dict[str, str] | None = None, **changes: object
) -> tuple[Rounds, SimulatedStand]:
    stand = SimulatedStand(by_words({}), num_prompts=num_prompts, wrong=wrong)
    return rounds_of(space(**changes), stand, num_prompts), stand


def test_all_take_the_same_prompts_and_the_order_alternates() -> None:
    rounds, stand = started()
    methods = structures(space())
    rounds.play(methods, 4)
    rounds.play(methods, 4)
    rounds.play(methods, 4)
    names = ["plain", "auto", "ngram", "suffix"]
    assert [name for name, _ in stand.turns] == [*names, *reversed(names), *names]
    assert [prompts for _, prompts in stand.turns[::4]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert all(stand.turns[4 * turn][1] == prompts for turn in range(3) for _, prompts in stand.turns[4 * turn :][:4])
    assert rounds.num_prompts("ngram") == 12
    assert len(rounds.pairs("plain", "ngram", since=1)) == 2


def test_a_round_holds_no_prompt_twice() -> None:
    rounds, stand = started(num_prompts=3)
    rounds.play((), 8)
    assert stand.turns == [("plain", [0, 1, 2])]
    assert rounds.num_prompts("plain") == 3


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [("tokens", "tokens are not those"), ("start", "does not start"), ("prompt", "broken"), ("mode", "not certified")],
)
def test_what_breaks_its_promise_is_left_out(wrong: str, fault: str) -> None:
    rounds, stand = started(wrong={"suffix": wrong})
    methods = structures(space())
    rounds.play(methods, 2)
    rounds.play(methods, 2)
    assert list(rounds.faults) == ["suffix"]
    assert fault in rounds.faults["suffix"]
    assert rounds.ratio("suffix") == 0
    assert [name for name, _ in stand.turns].count("suffix") == (0 if wrong == "start" else 1)
    assert rounds.ratio("ngram") > 0


def test_tokens_are_compared_with_those_of_the_same_weights() -> None:
    rounds, stand = started(wrong=dict.fromkeys(("plain q4", "suffix q4"), "tokens"), formats=("q8", "q4"))
    methods = {method.name: method for method in structures(space(formats=("q8", "q4")))}
    rounds.play([methods["suffix q4"], methods["ngram q4"]], 4)
    assert [name for name, _ in stand.turns] == ["plain", "plain q4", "suffix q4", "ngram q4"]
    assert list(rounds.faults) == ["ngram q4"]
    assert str(rounds.likeness["suffix q4"]) == "0% of the answers equal, ROUGE-L 0.50"


def test_without_plain_decoding_of_its_weights_nothing_is_promised() -> None:
    rounds, _ = started(wrong={"plain q4": "start"}, formats=("q8", "q4"))
    rounds.play([method for method in structures(space(formats=("q8", "q4"))) if method.name == "suffix q4"], 4)
    assert set(rounds.faults) == {"plain q4", "suffix q4"}


def test_exits_may_say_other_tokens_and_it_is_told_how_many() -> None:
    changes = {"exits": "smollm2-135m", "risk": 0.05}
    rounds, _ = started(wrong={"calibrated": "tokens"}, **changes)
    rounds.play(structures(space(**changes)), 4)
    assert rounds.faults == {}
    assert list(rounds.likeness) == ["calibrated"]


def test_prompts_that_plain_decoding_cant_answer_are_left_out() -> None:
    rounds, stand = started(num_prompts=4)
    stand.bad_prompts = {0, 1, 3}
    rounds.play((), 2)
    rounds.play((), 2)
    assert [prompts for _, prompts in stand.turns] == [[0, 1], [2, 3], [2]]
    assert set(rounds.unanswered) == {0, 1, 3}
    assert [each.num_prompts for each in rounds.rounds] == [1, 1]


def test_if_none_can_be_answered_it_is_said() -> None:
    rounds, stand = started(num_prompts=2)
    stand.bad_prompts = {0, 1}
    with pytest.raises(InvalidRequestError, match="no prompt: too long"):
        rounds.play((), 1)


def test_without_plain_decoding_there_is_nothing() -> None:
    rounds, _ = started(wrong={"plain": "start"})
    with pytest.raises(OfframpError, match="does not start"):
        rounds.play((), 1)


def test_what_is_not_kept_is_ended() -> None:
    rounds, stand = started()
    methods = structures(space())
    rounds.play(methods, 1)
    rounds.keep(methods[:1])
    assert stand.running == {"plain", "auto"}
    starting, each = rounds.predicted(methods)
    assert starting == 2 * stand.start_seconds
    assert each > 0
