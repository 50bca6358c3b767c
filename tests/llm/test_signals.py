"""Handlers are held for a block and answered after it, whatever they are and however blocks nest."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from offramp.llm.signals import SignalsHeld

FIRST, SECOND = signal.SIGUSR1, signal.SIGUSR2


class FirstError(Exception):
    pass


class SecondError(Exception):
    pass


@pytest.fixture
def answered() -> Iterator[list[int]]:
    """Signals whose handlers ran: two that raise."""
    numbers: list[int] = []
    errors = {FIRST: FirstError, SECOND: SecondError}

    def handler(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        raise errors[signal.Signals(number)]

    before = {number: signal.signal(number, handler) for number in errors}
    yield numbers
    for number, previous in before.items():
        assert signal.getsignal(number) is handler, "the handler was not put back"
        signal.signal(number, previous)


def held(act: Callable[[], object], done: list[str]) -> None:
    with SignalsHeld():
        act()
        done.append("block")
    done.append("after")


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_held_until_the_end_and_answered_once() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(lambda: (ctrl_c(), ctrl_c()), done)
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_nest() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(lambda: held(ctrl_c, done), done)
    assert done == ["block", "after", "block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_signal_is_answered_also_behind_one_that_raises(answered: list[int]) -> None:
    done: list[str] = []
    with pytest.raises(SecondError) as caught:
        held(lambda: [signal.raise_signal(number) for number in (FIRST, SECOND, FIRST)], done)
    assert isinstance(caught.value.__context__, FirstError)
    assert (done, answered) == (["block"], [FIRST, SECOND])


def test_an_exception_of_the_block_passes(answered: list[int]) -> None:
    with pytest.raises(ZeroDivisionError), SignalsHeld():
        raise ZeroDivisionError
    assert answered == []


def test_a_handler_set_within_the_block_stays(answered: list[int]) -> None:
    before = signal.getsignal(FIRST)
    with SignalsHeld():
        signal.signal(FIRST, signal.SIG_IGN)
    assert signal.getsignal(FIRST) is signal.SIG_IGN
    signal.signal(FIRST, before)


def test_a_signal_that_comes_while_the_block_is_entered_raises_there(
    answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGUSR2 comes when SIGUSR1 is held already and SIGUSR2 is not: SIGUSR1 gets its handler back."""
    from offramp.llm import signals

    set_handler = signals.set_handler

    def late(number: int, handler: object) -> object:
        if number == SECOND and not answered:
            signal.raise_signal(SECOND)
        return set_handler(number, handler)

    monkeypatch.setattr(signals, "set_handler", late)
    with pytest.raises(SecondError), SignalsHeld():
        raise AssertionError("not reached")
    assert answered == [SECOND]


def test_a_handler_that_raises_while_others_are_put_back_does_not_keep_them_from_it(
    answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from offramp.llm import signals

    set_handler, block = signals.set_handler, SignalsHeld()

    def early(number: int, handler: object) -> object:
        result = set_handler(number, handler)
        if block.active and number == SECOND and not answered:
            signal.raise_signal(SECOND)
        return result

    with pytest.raises(SecondError), block:
        monkeypatch.setattr(signals, "set_handler", early)
    assert answered == [SECOND]


def test_other_threads_leave_the_handler_alone() -> None:
    handlers = []

    def look() -> None:
        with SignalsHeld():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
