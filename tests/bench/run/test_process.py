"""A method's process: what it answers, and that crash, exit, garbage and silence are errors and leave nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offramp.bench.run.method import Method, methods_of
from offramp.bench.run.process import MethodProcess, WorkerError
from offramp.bench.run.turn import Heard
from offramp.bench.workloads.item import Item
from offramp.llm.model_flags import ModelFlags
from tests.bench.run.fakes import fake_process

ITEMS = (Item(name="one", task="t", content="a"), Item(name="two", task="t", content="b"))


def test_a_turn_and_what_is_heard_of_it() -> None:
    heard: list[Heard] = []
    program = "for request in requests(): say(heard=dict(num_ended=1, num_tokens=7)); answer(request)"
    with fake_process(program) as process:
        assert process.facts.source_hash == "hash"
        turn = process.turn(ITEMS, max_tokens=4, hear=heard.append)
    assert [answer.item for answer in turn.answers] == ["one", "two"]
    assert turn.answers[0].steps == ((500.0, 1), (1000.0, 1))
    assert turn.taken.seconds == 1.0
    assert heard == [Heard(num_ended=1, num_tokens=7)]


def test_an_item_that_fails_is_no_error() -> None:
    program = """
for request in requests():
    say(answered=answered("two"))
    say(failed=dict(item="one", reason="too long"))
    say(taken=TAKEN)
"""
    with fake_process(program) as process:
        turn = process.turn(ITEMS, max_tokens=4)
    assert [failed.reason for failed in turn.failed] == ["too long"]


@pytest.mark.parametrize(
    ("program", "message", "hint"),
    [
        ("next(requests()); os.kill(os.getpid(), 11)", "was killed by SIGSEGV", ""),
        ("next(requests()); sys.exit('out of everything')", "ended with exit code 1", "out of everything"),
        ("next(requests()); sys.exit(0)", "ended with exit code 0", "free memory"),
        ("next(requests()); os.close(1); time.sleep(60)", "closed its output", ""),
        ("next(requests()); time.sleep(60)", "said nothing for 0.4 s", ""),
        ("next(requests()); print('loading...', flush=True); time.sleep(60)", "nobody understands", ""),
        ("next(requests()); print('[]', flush=True); time.sleep(60)", "nobody understands", ""),
        ("next(requests()); print('\\xff', flush=True); time.sleep(60)", "nobody understands", ""),
        ("next(requests()); say(dance=1); time.sleep(60)", "'dance' in the place of 'taken'", ""),
        ("next(requests()); say(answered=dict(item='one')); time.sleep(60)", "is missing", ""),
        ("next(requests()); say(taken={**TAKEN, 'seconds': 'two'}); time.sleep(60)", "seconds is 'two'", ""),
        ("next(requests()); say(taken={**TAKEN, 'seconds': float('nan')}); time.sleep(60)", "seconds is nan", ""),
        ("next(requests()); say(answered=answered('one')); say(taken=TAKEN); time.sleep(60)", "other items", ""),
        ("next(requests()); say(error=dict(message='no pages', hint='raise it')); time.sleep(60)", "no pages", "raise"),
        ("sys.stdin.readline(); sys.exit('no such model')", "ended with exit code 1", "no such model"),
        ("sys.stdin.readline(); say(error=dict(message='is no model', hint='name one'))", "is no model", "name one"),
    ],
)
def test_what_goes_wrong_is_an_error_and_ends_the_process(program: str, message: str, hint: str) -> None:
    process = fake_process(program, silence_seconds=0.4 if "said nothing" in message else 60.0)
    with pytest.raises(WorkerError) as caught, process:
        process.turn(ITEMS, max_tokens=4)
    assert message in caught.value.message
    assert caught.value.message.startswith("method plain: ")
    assert hint in caught.value.hint
    assert process._process is not None
    assert process._process.poll() is not None


@pytest.mark.parametrize(("name", "told"), [("plain", False), ("ngram", True)])
def test_only_what_can_be_left_out_is_said_to_be(name: str, told: bool) -> None:
    process = fake_process("next(requests()); os.kill(os.getpid(), 9)", name=name)
    with pytest.raises(WorkerError) as caught, process:
        process.turn(ITEMS, max_tokens=4)
    assert ("leave this method out" in caught.value.hint) == told


def test_after_an_error_nothing_more_is_asked() -> None:
    with fake_process("next(requests()); say(dance=1); time.sleep(60)") as process:
        with pytest.raises(WorkerError):
            process.turn(ITEMS, max_tokens=4)
        with pytest.raises(WorkerError, match="has ended"):
            process.turn(ITEMS, max_tokens=4)


def test_a_program_that_is_not_there() -> None:
    process = MethodProcess(Method("plain", ModelFlags()), "toy", command=("/nowhere/python",))
    with pytest.raises(WorkerError, match="can't be started"):
        process.start()


def test_an_interrupt_ends_the_process() -> None:
    def interrupt(heard: Heard) -> None:
        raise KeyboardInterrupt

    process = fake_process("next(requests()); say(heard=dict(num_ended=0, num_tokens=0)); time.sleep(60)")
    with pytest.raises(KeyboardInterrupt), process:
        process.turn(ITEMS, max_tokens=4, hear=interrupt)
    assert process._process is not None
    assert process._process.poll() is not None


def test_a_process_that_does_not_read_is_an_error() -> None:
    items = [Item(name="one", task="t", content="long " * 40_000)]
    program = "sys.stdin.readline(); say(facts=FACTS); time.sleep(60)"
    with fake_process(program, silence_seconds=0.4) as process, pytest.raises(WorkerError, match="read nothing"):
        process.turn(items, max_tokens=4)


LONG_TURN = """
import sys
from offramp.bench.run.method import methods_of
from offramp.bench.run.process import MethodProcess
from offramp.bench.workloads.item import Item
from offramp.llm.model_flags import ModelFlags

def hear(heard):
    print(process._process.pid, flush=True)

with MethodProcess(methods_of([], ModelFlags(threads=1))[0], sys.argv[1]) as process:
    items = [Item(name=str(number), task="t", content="hello") for number in range(10_000)]
    process.turn(items, max_tokens=200, ignore_eos=True, hear=hear)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_no_child_outlives_its_parent(toy_path: Path, own_cache: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", LONG_TURN, str(toy_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        assert alive(child)
        os.kill(parent.pid, number)
        parent.wait()
    until(lambda: not alive(child))


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "still not"
        time.sleep(0.01)


def test_real_processes_tell_equal_tokens(toy_path: Path, own_cache: Path) -> None:
    plain, ngram = methods_of(["ngram:draft=ngram,draft_length=fixed"], ModelFlags(threads=1, max_num_seqs="4"))
    judged = [
        Item(name="said", task="t", content="hello", references=("hello world",)),
        Item(name="long", task="t", content="hello", references=("hello world " * 400,)),
    ]
    told = []
    for method in (plain, ngram):
        with MethodProcess(method, str(toy_path)) as process:
            told.append(process.turn(ITEMS, streams=2, max_tokens=24, texts=True, ignore_eos=True))
            if method is plain:
                costs = process.costs(row_counts=(1, 2), context=32)
                perplexities = process.perplexities([*ITEMS, *judged])
    one, other = told
    assert [answer.token_ids for answer in one.answers] == [answer.token_ids for answer in other.answers]
    assert one.taken.output_tokens == 48
    assert all(len(answer.pieces) == 24 and "".join(answer.pieces) == answer.text for answer in one.answers)
    assert one.taken.peak_bytes is not None
    assert one.taken.peak_bytes > 2**20
    assert [answer.num_drafts for answer in one.answers] == [0, 0]
    assert sum(answer.num_drafts for answer in other.answers) > 0
    for answer in (*one.answers, *other.answers):
        assert len(answer.pieces) == len(answer.token_ids)
        assert "".join(answer.pieces) == answer.text
    assert perplexities.keys() == {"said"}  # of the items that have a reference, and room for it
    assert perplexities["said"] > 1
    assert [cost.rows for cost in costs] == [1, 2]
    assert all(cost.measured_ms > 0 and cost.predicted_ms > 0 for cost in costs)
