"""Signals, the garbage collector, forks and internal errors may come at any moment; the engine stays whole."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, InvalidRequestError, ResourceError, SamplingParams
from offramp.llm.stream import DeltaStream
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import Script, mixing

VOCAB = chat_tokenizer().vocab_size
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def when(length: int, act: Callable[[], object]) -> Script:
    """A hash of the history; `act` happens in the middle of the step where a history has `length` tokens."""
    well = mixing(VOCAB)

    def script(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        if len(history) == length:
            act()
        return well(history, depth)

    return script


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_a_step_aborts_the_call_and_the_model_stays_usable() -> None:
    llm = LLM.from_loaded(scripted_model(when(10, ctrl_c)))
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["hello", "hello there", "other"], LONG)
    assert llm.statistics.num_used_pages == 0
    assert llm.statistics.num_finished["abort"] == 3
    [expected] = LLM.from_loaded(scripted_model(mixing(VOCAB))).generate([7] * 12, LONG)
    [found] = llm.generate([7] * 12, LONG)
    assert found.outputs[0].token_ids == expected.outputs[0].token_ids


def test_ctrl_c_in_a_stream_leaves_other_streams_running() -> None:
    llm = LLM.from_loaded(scripted_model(when(10, ctrl_c)))
    other = llm.stream([7] * 20, LONG)
    next(other)
    stream = llm.stream([5], LONG)
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert list(stream) == []
    tokens = [token for delta in other for token in delta.token_ids]
    assert len(tokens) == 39
    assert llm.statistics.num_used_pages == 0


class AlarmError(Exception):
    pass


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        assert signal.getsignal(number) is handler
        signal.signal(number, before)


def time_out(number: int, frame: FrameType | None) -> None:
    raise AlarmError


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN + 3])
def test_a_handler_that_raises_aborts_the_call_after_the_step(number: int) -> None:
    ahead = [number]
    llm = LLM.from_loaded(scripted_model(when(10, lambda: ahead and signal.raise_signal(ahead.pop()))))
    with handling(number, time_out), pytest.raises(AlarmError):
        llm.generate(["hello", "other"], LONG)
    assert llm.statistics.num_used_pages == 0
    assert llm.statistics.num_finished["abort"] == 2
    assert llm.generate([5], LONG)[0].report.output_tokens == 40


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one may strike within a __del__
def test_alarms_at_any_moment_never_break_the_engine() -> None:
    """During calls and streams, some of them twice in a row; no page and no request stays behind."""
    armed: list[int] = []

    def strike(number: int, frame: FrameType | None) -> None:
        if armed:
            raise AlarmError(armed.pop())

    def act(turn: int) -> None:
        try:
            armed.extend(range(2 if turn % 5 == 0 else 1))
            if turn % 2:
                llm.generate([[7] * 12, [8]], LONG)
            else:
                deque(llm.stream([7] * 12, LONG), maxlen=0)
        finally:
            armed.clear()

    llm = LLM.from_loaded(scripted_model(mixing(VOCAB)))
    [expected] = llm.generate([7] * 12, LONG)
    random, caught = np.random.default_rng(1), 0
    with handling(signal.SIGALRM, strike):
        for turn in range(40):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 8e-3), 5e-5)
            try:
                act(turn)
            except AlarmError:
                caught += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            [found] = llm.generate([7] * 12, LONG)
            assert found.outputs[0].token_ids == expected.outputs[0].token_ids
    assert caught > 15
    gc.collect()
    llm.generate([5], LONG)
    assert (llm.statistics.num_used_pages, llm.statistics.num_running, llm.statistics.num_waiting) == (0, 0, 0)


def test_a_stream_collected_in_the_middle_of_a_step_is_aborted_after_it() -> None:
    streams: list[DeltaStream] = []
    llm = LLM.from_loaded(scripted_model(when(10, streams.clear)))
    streams.append(llm.stream([7] * 20, LONG))
    next(streams[0])
    [output] = llm.generate([5], LONG)
    assert output.report.output_tokens == 40
    assert (llm.statistics.num_finished["abort"], llm.statistics.num_used_pages) == (1, 0)


def test_an_internal_error_ends_the_use_of_the_engine() -> None:
    def fail() -> None:
        raise AssertionError("broken on purpose")

    llm = LLM.from_loaded(scripted_model(when(10, fail)))
    with pytest.raises(AssertionError, match="on purpose"):
        llm.generate([5], LONG)
    with pytest.raises(ResourceError, match="AssertionError: broken on purpose"):
        llm.generate([5], LONG)


def test_a_refused_request_does_not_end_it() -> None:
    llm = LLM.from_loaded(scripted_model(mixing(VOCAB)))
    with pytest.raises(InvalidRequestError):
        llm.generate([VOCAB], LONG)
    assert llm.generate([5], LONG)[0].report.output_tokens == 40


def in_child(act: Callable[[], None]) -> int:
    """Fork, `act` in the child; its exit code: 0 if nothing was raised, -14 if it took 20 s."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_goes_on() -> None:
    llm = LLM.from_loaded(scripted_model(mixing(VOCAB)))
    stream = llm.stream([7] * 12, LONG)
    next(stream)

    def go_on() -> None:
        assert len(list(stream)) == 39
        assert llm.generate([5], LONG)[0].report.output_tokens == 40

    assert in_child(go_on) == 0
    assert len(list(stream)) == 39


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_another_threads_step_needs_a_new_llm() -> None:
    inside, leave = threading.Event(), threading.Event()

    def dwell() -> None:
        inside.set()
        leave.wait(20)

    llm = LLM.from_loaded(scripted_model(when(10, dwell)))
    thread = threading.Thread(target=lambda: llm.generate([7] * 5, LONG))
    thread.start()
    assert inside.wait(20)

    def refused() -> None:
        with pytest.raises(ResourceError, match="forked") as caught:
            llm.generate([5], LONG)
        assert "in the child" in caught.value.hint
        llm.close()

    try:
        assert in_child(refused) == 0
    finally:
        leave.set()
        thread.join()
    assert llm.generate([5], LONG)[0].report.output_tokens == 40


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_handles_text_leaves_no_lock_held() -> None:
    llm = LLM.from_loaded(scripted_model(mixing(VOCAB)))
    inside, leave = threading.Event(), threading.Event()

    def dwell() -> None:
        with llm.model.tokenizer._lock, llm.model.template._lock:
            inside.set()
            leave.wait(20)

    def chat() -> None:
        assert llm.chat([{"role": "user", "content": "hi"}], LONG).report.output_tokens == 40

    thread = threading.Thread(target=dwell)
    thread.start()
    assert inside.wait(20)
    try:
        assert in_child(chat) == 0
    finally:
        leave.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_ctrl_c_works_in_the_child_of_a_thread_that_forked_while_signals_were_held() -> None:
    codes: list[int] = []

    def interrupted() -> None:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def fork_elsewhere() -> None:
        thread = threading.Thread(target=lambda: codes.append(in_child(interrupted)))
        thread.start()
        thread.join()

    llm = LLM.from_loaded(scripted_model(when(10, fork_elsewhere)))
    llm.generate([5] * 5, LONG)
    assert set(codes) == {0}  # a position may run twice, as a draft and again
