"""A vote on whole answers: who wins, who is late, who fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from offramp.collaborate import Committee
from offramp.collaborate.ensemble.committee import plain_ballot, vote
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, NumericError, OfframpError, ResourceError
from offramp.llm import LLM
from offramp.testing.gate import Gate, gated_model
from offramp.testing.models import says
from tests.serve.piping import SURE, big_model, exchanges, little_model

ASKED: Sequence[Mapping[str, object]] = [{"role": "user", "content": SURE}]
TIME = 0.5
"""Seconds, in which a thread begins and says a word on a machine that does other work."""


@dataclass
class Piece:
    text: str
    error: OfframpError | None = None


@dataclass
class Speaker:
    """Says its pieces; waits before those that are None until it is closed or a second has passed."""

    pieces: Sequence[str | OfframpError | None]
    closed: threading.Event = field(default_factory=threading.Event)

    def stream_chat(self, messages: Sequence[Mapping[str, object]], params: SamplingParams | None = None) -> Any:
        return self

    def __iter__(self) -> Iterator[Piece]:
        for piece in self.pieces:
            if piece is None:
                time.sleep(0.02)
                yield Piece("")
            else:
                yield Piece("", piece) if isinstance(piece, OfframpError) else Piece(piece)

    def close(self) -> None:
        self.closed.set()


def test_the_majority_wins() -> None:
    members = [Speaker(["4", "2"]), Speaker(["41"]), Speaker([" 42."])]
    verdict = Committee(members).chat(ASKED)
    assert verdict.text == "42"
    assert verdict.votes == {"42": (0, 2), "41": (1,)}
    assert (verdict.late, dict(verdict.failed)) == ((), {})
    assert all(member.closed.is_set() for member in members)


@pytest.mark.parametrize(
    ("texts", "weights", "winner"),
    [
        ({0: "a", 1: "b"}, [1, 1], 0),
        ({0: "a", 1: "b"}, [1, 2], 1),
        ({0: "a", 1: "b", 2: "b"}, [9, 1, 1], 1),
        ({1: "b", 2: "a"}, [9, 1, 1], 1),
    ],
)
def test_ties_go_by_weight_then_to_the_earlier(texts: dict[int, str], weights: list[float], winner: int) -> None:
    assert vote(texts, weights)[0] == winner


def test_a_ballot_says_what_counts() -> None:
    def last_word(text: str) -> str:
        return text.split()[-1]

    members = [Speaker(["it is 7"]), Speaker(["so 7"]), Speaker(["it is 8"])]
    assert Committee(members, ballot=last_word).chat(ASKED).votes == {"7": (0, 1), "8": (2,)}
    assert plain_ballot("  Yes,\n it IS. ") == "yes, it is"


def test_who_is_late_is_stopped_and_has_no_vote() -> None:
    slow = Speaker(["4", *[None] * 500, "1"])
    began = time.monotonic()
    verdict = Committee([slow, Speaker(["42"]), Speaker([*[None] * 500])], seconds=TIME).chat(ASKED)
    assert time.monotonic() - began < 10, "as long as the slow ones take"
    assert (verdict.text, verdict.late) == ("42", (0, 2))
    assert slow.closed.wait(30)


@dataclass
class Stuck:
    """In the middle of something that takes longer than anybody waits; `close` is all that it hears."""

    before: bool  # the stream opens, rather than after
    go_on: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def stream_chat(self, messages: Sequence[Mapping[str, object]], params: SamplingParams | None = None) -> Any:
        if self.before:
            self.go_on.wait(30)
        return self

    def __iter__(self) -> Iterator[Piece]:
        self.go_on.wait(30)
        yield Piece("42")

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("before", [True, False])
def test_who_hears_nothing_holds_up_nobody(before: bool) -> None:
    stuck = Stuck(before)
    began = time.monotonic()
    try:
        verdict = Committee([stuck, Speaker(["42"])], seconds=TIME).chat(ASKED)
        assert time.monotonic() - began < 30, "as long as the stuck one takes"
        assert (verdict.text, verdict.late, dict(verdict.failed)) == ("42", (0,), {})
        assert stuck.closed.is_set() != before
    finally:
        stuck.go_on.set()
    assert stuck.closed.wait(30), "it is closed as soon as it comes back"


def test_a_late_front_door_answers_others_afterwards() -> None:
    """Its request is aborted: what the committee gave up takes no steps of the next question."""
    gate = Gate()
    with LLM.from_loaded(gated_model(says(*exchanges("one")), gate)) as slow:
        gate.close()
        endless = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
        verdict = Committee([slow, Speaker(["two"])], seconds=TIME).chat(ASKED, endless)
        assert (verdict.text, verdict.late) == ("two", (0,))
        gate.open()
        assert slow.chat(ASKED, SamplingParams(temperature=0, max_tokens=8)).outputs[0].text == "one"
        assert not slow._engine.has_work


def test_who_fails_has_no_vote() -> None:
    broken = NumericError("NaN", hint="x")
    verdict = Committee([Speaker(["4", broken]), Speaker(["42"])]).chat(ASKED)
    assert verdict.text == "42"
    assert verdict.failed == {0: broken}


def test_where_nobody_answers_that_is_told() -> None:
    with pytest.raises(ResourceError, match=r"no member had an answer in 0\.05 s"):
        Committee([Speaker([None] * 500), Speaker([None] * 500)], seconds=0.05).chat(ASKED)
    broken = NumericError("NaN", hint="x")
    with pytest.raises(NumericError, match="NaN"):
        Committee([Speaker([broken]), Speaker([broken])]).chat(ASKED)


def test_real_front_doors_vote() -> None:
    with LLM.from_loaded(little_model()) as one, LLM.from_loaded(big_model()) as two:
        verdict = Committee([one, two, two]).chat(ASKED, SamplingParams(temperature=0, max_tokens=8))
        assert (verdict.text, verdict.votes) == ("two", {"one": (0,), "two": (1, 2)})


@pytest.mark.parametrize(
    ("count", "options", "name"),
    [
        (1, {}, "members"),
        (2, {"seconds": 0}, "seconds"),
        (2, {"seconds": float("nan")}, "seconds"),
        (2, {"weights": [1]}, "weights"),
        (2, {"weights": [1, -1]}, "weights"),
    ],
)
def test_impossible_committees_are_refused(count: int, options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        Committee([Speaker(["x"])] * count, **options)
