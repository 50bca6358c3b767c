"""Ctrl-C, the garbage collector and internal errors may come at any moment; the engine stays whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from offramp import LLM, InvalidRequestError, ResourceError, SamplingParams
from offramp.llm.driver import interrupts_held
from offramp.llm.stream import DeltaStream
from offramp.testing.models import chat_tokenizer, scripted_model
from offramp.testing.scripted import Script, mixing

VOCAB = chat_tokenizer().vocab_size
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def when(length: int, act: Callable[[], None]) -> Script:
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


def held(act: Callable[[], object], done: list[str]) -> None:
    with interrupts_held():
        act()
        done.append("block")
    done.append("after")


def test_interrupts_are_held_until_the_end_and_answered_once() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(lambda: (ctrl_c(), ctrl_c()), done)
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_nest() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        held(lambda: held(ctrl_c, done), done)
    assert done == ["block", "after", "block"]


def test_other_threads_leave_the_handler_alone() -> None:
    handlers = []

    def look() -> None:
        with interrupts_held():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
