"""Which sequences run in a step, and how many tokens of each: plain ints, no phases.

Every sequence is behind by some tokens; a step takes a chunk of them. Sequences one token behind come first, so that a
long prompt never stalls others; then longer arrears; then new admissions, all by (priority, arrival, choice). When
pages run out the last in that order is preempted: it gives all pages back and recomputes later. The first in order can
always preempt everyone else and fits alone, so a step never deadlocks.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from offramp.cache.pages import PagePool
from offramp.core import SequenceKey
from offramp.engine.task import Task


@dataclass(slots=True)
class PlanItem:
    """Tokens start..stop-1 of a task run in this step, after the page copies (source, target)."""

    task: Task
    start: int
    stop: int
    copies: list[tuple[int, int]] = field(default_factory=list)

    @property
    def yields(self) -> bool:
        """It catches up, so its last row decides the next token."""
        return self.stop == len(self.task.sequence)


@dataclass(slots=True)
class Plan:
    """What one step will do; `budget` is the number of rows still unused."""

    budget: int
    by_key: dict[SequenceKey, PlanItem] = field(default_factory=dict)
    preempted: list[Task] = field(default_factory=list)

    @property
    def items(self) -> list[PlanItem]:
        return list(self.by_key.values())

    def put(self, item: PlanItem) -> None:
        self.by_key[item.task.sequence.key] = item
        self.budget -= item.stop - item.start

    def drop(self, task: Task) -> None:
        item = self.by_key.pop(task.sequence.key, None)
        if item is not None:
            self.budget += item.stop - item.start


class Planner:
    """Owns the queue of waiting tasks and the list of running ones, both in order of service."""

    def __init__(self, pool: PagePool, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.waiting: list[Task] = []
        self.running: list[Task] = []
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens

    def add(self, task: Task) -> None:
        insort(self.waiting, task, key=_rank)

    def remove(self, task: Task) -> None:
        """The task ended: its pages go back."""
        (self.running if task in self.running else self.waiting).remove(task)
        task.cache.release()

    def plan(self) -> Plan:
        """Choose this step's work and hold the pages it writes. Preempts when pages run out."""
        plan = Plan(self._max_num_batched_tokens)
        for task, behind in sorted([(task, task.behind) for task in self.running], key=_catches_up_last):
            self._extend(plan, task, behind)
        self._admit(plan)
        assert plan.by_key or not (self.running or self.waiting), "nothing runs although there is work"
        return plan

    def _extend(self, plan: Plan, task: Task, behind: int) -> None:
        """Give a running task a chunk; it may be preempted itself, or have been before its turn."""
        if plan.budget == 0 or task in plan.preempted:
            return
        start = task.cache.fill.filled
        stop = start + min(behind, plan.budget)
        while task.cache.missing(stop) > self._pool.num_available:
            victim = self.running[-1]
            self._preempt(plan, victim)
            if victim is task:
                return
        task.cache.grow(stop)
        plan.put(PlanItem(task, start, stop))

    def _preempt(self, plan: Plan, task: Task) -> None:
        plan.drop(task)
        plan.preempted.append(task)
        self.remove(task)
        self.add(task)

    def _admit(self, plan: Plan) -> None:
        """Start waiting tasks in order, without overtaking, while rows, places and pages last."""
        while plan.budget > 0:
            task = next((task for task in self.waiting if not task.awaits_leader), None)
            if task is None or task in plan.preempted:
                return
            if len(self.running) < self._max_num_seqs and self._start(plan, task):
                continue
            worst = self.running[-1] if self.running else task
            if worst.sequence.request.priority <= task.sequence.request.priority:
                return
            self._preempt(plan, worst)

    def _start(self, plan: Plan, task: Task) -> bool:
        """Admit a task if pages for all its present tokens can be had, cached ones included."""
        cache, sequence = task.cache, task.sequence
        covered, copies = cache.adopt(sequence.tokens.view, task.adoptable)
        if cache.missing(len(sequence)) > self._pool.num_available:
            cache.release()
            return False
        stop = covered + min(task.behind, plan.budget)
        cache.grow(stop)
        if task.num_cached is None:
            task.num_cached = covered
        self.waiting.remove(task)
        insort(self.running, task, key=_rank)
        plan.put(PlanItem(task, covered, stop, copies))
        return True


def _catches_up_last(entry: tuple[Task, int]) -> bool:
    return entry[1] > 1


def _rank(task: Task) -> tuple[int, int, int]:
    return task.sequence.rank
