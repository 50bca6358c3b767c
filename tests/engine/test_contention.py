"""The load of others, from counters that are given: no test looks at this machine but the last, which only reads."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from offramp.engine.contention import Usage, load_between, read_usage

STAT, SCHEDSTAT = Path("/proc/stat"), Path("/proc/self/schedstat")
START = Usage(now=100.0, own=7.0, thread=3.0, busy=50.0, waited={1: 0.5}, num_cpus=2, tick=0.01)


def later(
    *, own: float, busy: float | None, waited: dict[int, float] | None = None, seconds: float = 2.0, slept: float = 0.0
) -> Usage:
    """After some seconds, in which so much more was counted, and the calling thread slept."""
    return replace(
        START,
        now=START.now + seconds,
        own=START.own + own,
        thread=START.thread + seconds - slept,
        busy=None if busy is None or START.busy is None else START.busy + busy,
        waited=START.waited if waited is None else waited,
    )


def test_what_this_process_uses_is_no_load() -> None:
    assert load_between(START, later(own=3.9, busy=3.9)) == 0.0


def test_others_count_by_their_share_of_the_cpus() -> None:
    assert load_between(START, later(own=0.6, busy=4.0)) == pytest.approx((3.4 - 0.02) / 4)


def test_a_tick_of_each_cpu_is_rounding() -> None:
    assert load_between(START, later(own=0.15, busy=0.17, seconds=0.08)) == pytest.approx(0.0)
    assert load_between(START, later(own=0.05, busy=0.15, seconds=0.08)) == pytest.approx(0.5)


def test_threads_that_wait_for_a_core_count_each_and_new_ones_from_their_start() -> None:
    waited = {1: 1.0, 2: 0.5}
    assert load_between(START, later(own=3.0, busy=3.0, waited=waited)) == pytest.approx(0.5)


def test_more_threads_that_wait_are_no_more_than_all() -> None:
    assert load_between(START, later(own=3.0, busy=3.0, waited={1: 2.5, 2: 2.0})) == 1.0


def test_a_thread_that_ended_takes_nothing_away() -> None:
    assert load_between(START, later(own=3.0, busy=3.0, waited={2: 0.25})) == pytest.approx(0.125)


def test_a_thread_that_times_and_mostly_sleeps_has_no_threads_to_work_with() -> None:
    assert load_between(START, later(own=3.0, busy=3.0, slept=0.2)) == pytest.approx(0.0)
    assert load_between(START, later(own=3.0, busy=3.0, slept=1.0)) == pytest.approx(0.4)


def test_what_is_not_counted_is_not_judged() -> None:
    assert load_between(START, later(own=1.0, busy=None)) == 0.0
    assert load_between(replace(START, busy=None), later(own=1.0, busy=4.0, waited={1: 1.5})) == pytest.approx(0.5)


def test_no_time_no_load() -> None:
    assert load_between(START, START) == 0.0


def written(proc: Path, cpus: set[int]) -> Path:
    """A folder as /proc is: each CPU was busy for 600 ticks, and one that we may not use for many more."""
    other = max(cpus) + 1
    lines = ["cpu  9999 0 0 0 0 0 0 0 0 0", *(f"cpu{cpu} 100 100 100 7000 50 100 100 100 20 0" for cpu in cpus)]
    (proc / "stat").write_text("\n".join([*lines, f"cpu{other} 9999 0 0 0 0 0 0 0 0 0", "ctxt 12"]) + "\n")
    for thread, waited in ((11, 2_500_000_000), (12, 0)):
        folder = proc / "self" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"123456 {waited} 7\n")
    (proc / "self" / "task" / "13").mkdir()  # has just ended
    return proc


def test_the_counters_are_read_of_the_cpus_that_we_may_use(tmp_path: Path) -> None:
    cpus = os.sched_getaffinity(0)
    usage = read_usage(written(tmp_path, cpus))
    assert usage.busy == pytest.approx(600 * len(cpus) * usage.tick)
    assert usage.waited == {11: 2.5, 12: 0.0}
    assert usage.num_cpus == len(cpus)


def test_a_system_without_them_still_tells_the_time(tmp_path: Path) -> None:
    usage = read_usage(tmp_path)
    assert (usage.busy, usage.waited) == (None, {})
    assert usage.now > 0


def test_this_system_is_read() -> None:
    before = read_usage()
    after = read_usage()
    assert before.now < after.now
    assert before.own <= after.own
    listed = {line.split()[0] for line in STAT.read_text().splitlines()} if STAT.exists() else set()
    if listed & {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}:
        assert before.busy is not None
        assert after.busy is not None
        assert 0 < before.busy <= after.busy
    if SCHEDSTAT.exists():
        thread = threading.get_native_id()
        assert 0 <= before.waited[thread] <= after.waited[thread]
