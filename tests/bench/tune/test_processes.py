"""Methods run in processes that are started once, warmed, and ended whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from offramp.bench.run.method import Method
from offramp.bench.run.turn import Answered, Facts, Failed, Taken, Turn
from offramp.bench.tune import processes
from offramp.bench.tune.processes import WARM_TOKENS, Processes
from offramp.bench.workloads.item import Item
from offramp.errors import OfframpError
from offramp.llm.model_flags import ModelFlags
from tests.bench.tune.simulated import FACTS

ITEMS = [Item(name=name, task="t", content=name) for name in ("a", "b", "c")]
PLAIN, OTHER = (Method(name, ModelFlags(draft="off")) for name in ("plain", "other"))


class FakeProcess:
    """Answers with the prompt's letter; notes all calls."""

    def __init__(self, calls: list[tuple[object, ...]], method: Method, breaks: str | None = None) -> None:
        self._calls = calls
        self._name = method.name
        self._breaks = breaks

    def start(self) -> Facts:
        self._calls.append(("start", self._name))
        if self._breaks == "start":
            raise OfframpError("no memory", hint="free some")
        return FACTS

    def turn(self, items: Sequence[Item], *, streams: int = 1, max_tokens: int) -> Turn:
        self._calls.append(("turn", self._name, "".join(item.name for item in items), streams, max_tokens))
        if self._breaks == "turn" and len(items) > 1:
            raise OfframpError("it was killed", hint="free some memory")
        taken = Taken(
            seconds=0.5,
            prompt_tokens=4,
            output_tokens=6,
            decode_seconds=0.3,
            decoded_tokens=5,
            peak_bytes=1000,
            joules=None,
        )
        answers = [
            Answered(
                item=item.name,
                prompt_tokens=2,
                token_ids=(ord(item.name), 1),
                finish_reason="length",
                first_seconds=0.1,
                steps=(),
            )
            for item in items
            if item.name != "c"
        ]
        failed = tuple(Failed(item="c", reason="too long") for item in items if item.name == "c")
        return Turn(taken=taken, answers=tuple(answers), failed=failed)

    def close(self) -> None:
        self._calls.append(("close", self._name))


def stand(calls: list[tuple[object, ...]], breaks: dict[str, str] | None = None) -> Processes:
    return Processes(
        "toy",
        ITEMS,
        streams=2,
        max_tokens=64,
        seconds=60,
        make=lambda method, model: FakeProcess(calls, method, (breaks or {}).get(method.name)),
    )


def test_a_process_is_started_once_and_warmed_and_ended_with_the_block() -> None:
    calls: list[tuple[object, ...]] = []
    with stand(calls) as running:
        assert running.begin(PLAIN) is FACTS
        turned = running.take(PLAIN, [1, 2, 0])
        running.take(PLAIN, [0])
    assert calls == [
        ("start", "plain"),
        ("turn", "plain", "a", 1, WARM_TOKENS),
        ("turn", "plain", "bca", 2, 64),
        ("turn", "plain", "a", 2, 64),
        ("close", "plain"),
    ]
    assert turned.answers == {1: (ord("b"), 1), 0: (ord("a"), 1)}
    assert turned.failed == {2: "too long"}
    assert (turned.timed.seconds, turned.timed.tokens) == (0.5, 6)


@pytest.mark.parametrize("breaks", ["start", "turn"])
def test_one_that_breaks_is_closed_and_the_others_run_on(breaks: str) -> None:
    calls: list[tuple[object, ...]] = []
    with stand(calls, {"other": breaks}) as running:
        running.begin(PLAIN)
        with pytest.raises(OfframpError, match=r"no memory|killed"):
            running.take(OTHER, [0, 1])
        assert calls[-1] == ("close", "other")
        running.take(PLAIN, [0])
    assert calls.count(("close", "other")) == 1
    assert calls[-1] == ("close", "plain")


def test_what_is_ended_is_started_again_when_it_is_wanted() -> None:
    calls: list[tuple[object, ...]] = []
    with stand(calls) as running:
        running.take(OTHER, [0])
        running.end(OTHER)
        running.end(OTHER)
        running.take(OTHER, [0])
    assert [call for call in calls if call[0] != "turn"] == [("start", "other"), ("close", "other")] * 2


def test_where_memory_is_short_who_had_no_turn_for_longest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    third = Method("third", ModelFlags(draft="off"))
    with stand(calls) as running:
        running.take(PLAIN, [0])
        running.take(OTHER, [0])
        running.take(PLAIN, [1])
        monkeypatch.setattr(processes, "available_memory", lambda: 1100 if ("close", "other") in calls else 900)
        running.take(third, [0])
        assert [call for call in calls if call[0] == "close"] == [("close", "other")]
        running.take(PLAIN, [0])
        assert calls.count(("start", "plain")) == 1


def test_a_long_first_start_is_not_taken_for_what_starts_take(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    clock = iter([0.0, 0.0, 40.0, 41.0, 43.0])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(clock))
    running = stand(calls)
    running.begin(PLAIN)
    assert running.start_seconds == 2.0
    assert calls.count(("start", "plain")) == 2


def test_the_clock_runs_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(clock))
    running = stand([])
    assert running.seconds_left() == pytest.approx(0.97 * 60 - 10)
    assert running.budget_seconds == 60
