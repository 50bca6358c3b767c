"""Rounds of a run: in each, every method takes its turn on every workload, and none always comes first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from offramp.bench.provenance import provenance
from offramp.bench.results.file import Key, ResultFile
from offramp.bench.results.lines import PLAIN, CostLine, FailureLine, ItemLine, Line, RunLine, TurnLine
from offramp.bench.run.method import Method, exactness
from offramp.bench.run.packs import pack_hashes
from offramp.bench.run.process import MethodProcess, WorkerError
from offramp.bench.run.scoring import missing_scores, perplexities, perplexity_lines, unjudged
from offramp.bench.run.turn import Facts, Heard, Turn
from offramp.bench.workloads.item import Workload
from offramp.bench.workloads.read import check_readable

T = TypeVar("T")

WARM_TOKENS = 8
"""Of the turn before the first one, which counts nowhere."""
COST_ROWS = (1, 2, 4, 8, 16)
COST_CONTEXT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run. `methods` begin with plain decoding; workloads have names of their own."""

    model: str
    methods: Sequence[Method]
    workloads: Sequence[Workload]
    streams: tuple[int, ...]
    rounds: int
    max_tokens: int
    perplexity: bool = False  # of the references, too


class Teller(Protocol):
    """Hears how far a run is."""

    def say(self, text: str) -> None:
        """Something that happened."""
        ...

    def turn(self, text: str, num_done: int, num_all: int) -> None:
        """A turn begins, with so many items answered before it, of all."""
        ...

    def hear(self, heard: Heard) -> None:
        """A word from that turn."""
        ...


class Start(Protocol):
    """Makes a method's process, which is started by whoever gets it."""

    def __call__(self, method: Method, model: str) -> MethodProcess: ...


@dataclass(frozen=True, slots=True)
class Due:
    """A turn that is to be taken."""

    workload: Workload
    streams: int
    round: int
    method: Method

    @property
    def key(self) -> Key:
        return self.workload.name, self.method.name, self.streams, self.round


def run_rounds(plan: Plan, path: Path, teller: Teller, *, start: Start = MethodProcess) -> list[Line]:
    """Run what the file lacks, and append it; all its lines.

    A method whose process fails is dropped, which the file then tells; if plain decoding fails, WorkerError is raised.
    Raises InvalidRequestError for another run's file, ResourceError where it can't be written.
    """
    with ExitStack() as stack:
        plain = start(plan.methods[0], plan.model)
        teller.say(f"loading {plain.method.name}")
        stack.enter_context(plain)
        for workload in plan.workloads:
            check_readable(workload, plan.model, chat=plain.facts.chat)
        file = stack.enter_context(ResultFile(path, run_line(plan, plain.facts)))
        _Run(plan, file, teller, start, stack, {PLAIN: plain}).go()
        return file.lines


def order(names: Sequence[T], number: int) -> list[T]:
    """Who comes when: who begins rotates, forwards and then backwards."""
    cycle, first = divmod(number, len(names))
    turned = [*names[first:], *names[:first]]
    return turned[::-1] if cycle % 2 else turned


def run_line(plan: Plan, facts: Facts) -> RunLine:
    """What is run, and where."""
    place = {name: getattr(facts, name) for name in ("threads", "kernels", "kv")}
    load = [round(each, 2) for each in os.getloadavg()]
    plain, packs = plan.methods[0].flags, pack_hashes(plan.methods)
    read = {"packs": packs} if packs else {}
    return RunLine(
        model=plan.model,
        source_hash=facts.source_hash,
        methods={method.name: method.options for method in plan.methods},
        exactness={method.name: exactness(method.flags, plain) for method in plan.methods},
        workloads={workload.name: _facts_of(workload) for workload in plan.workloads},
        streams=plan.streams,
        rounds=plan.rounds,
        max_tokens=plan.max_tokens,
        provenance={**provenance(), **place, **read, "weights": dict(facts.weights), "load": load},
    )


@dataclass(slots=True)
class _Run:
    """A run under way."""

    plan: Plan
    file: ResultFile
    teller: Teller
    start: Start
    stack: ExitStack
    processes: dict[str, MethodProcess]  # those that run

    def go(self) -> None:
        dropped = {line.method: line for line in self.file.lines if isinstance(line, FailureLine) and line.item is None}
        for name, line in dropped.items():
            self.teller.say(f"{name} is left out: it failed before ({line.reason})")
        due = [each for each in _turns(self.plan) if each.key not in self.file.done]
        due = [each for each in due if each.method.name not in dropped]
        for name in dict.fromkeys(each.method.name for each in due):
            self._ready(name, [each for each in due if each.method.name == name])
        last = -1
        for each in due:
            if each.round > last >= 0:
                self._score()
            last = each.round
            if each.method.name in self.processes:
                self._take(each, due)
        self._score()
        self._finish()

    def _ready(self, name: str, due: Sequence[Due]) -> None:
        """Start and warm a method's process."""
        try:
            process = self.processes.get(name)
            if process is None:
                self.teller.say(f"loading {name}")
                process = self.stack.enter_context(self.start(due[0].method, self.plan.model))
                self.processes[name] = process
            process.turn(due[0].workload.items[:1], max_tokens=min(WARM_TOKENS, self.plan.max_tokens))
            self._check_alike(process)
        except WorkerError as error:
            self._drop(due[0], error)

    def _check_alike(self, process: MethodProcess) -> None:
        """Tell of what would make a comparison unfair."""
        plain = self.processes[PLAIN].facts
        if process.facts.large_pages != plain.large_pages:
            which = "memory in large pages" if process.facts.large_pages else "no memory in large pages"
            self.teller.say(f"note: {process.method.name} has {which}, unlike plain: run fewer methods at once")

    def _finish(self) -> None:
        """What a process tells of its model: last, since it may take more memory than turns do."""
        for process in list(self.processes.values()):
            name = process.method.name
            try:
                if name == PLAIN:
                    self._costs()
                if name == PLAIN or not self._as_plain(process.method):
                    self._judge_weights(name, process)
            except WorkerError as error:
                self.teller.say(f"note: figures are missing: {error.message}")
        for method in self.plan.methods:
            if self._as_plain(method):
                self._judge_weights(method.name)

    def _costs(self) -> None:
        """The cost model's fit, once."""
        known = {line.rows for line in self.file.lines if isinstance(line, CostLine)}
        missing = [count for count in COST_ROWS if count not in known]
        if missing:
            self.teller.say("measuring steps")
            costs = self.processes[PLAIN].costs(row_counts=missing, context=COST_CONTEXT)
            if not costs:
                self.teller.say("note: no costs of steps: K/V memory is too small to measure them")
            self.file.append(*costs)

    def _as_plain(self, method: Method) -> bool:
        """The same weights and K/V as plain decoding's."""
        plain = self.plan.methods[0].flags
        return (method.flags.weights, method.flags.kv) == (plain.weights, plain.kv)

    def _judge_weights(self, name: str, process: MethodProcess | None = None) -> None:
        """Perplexities under a method's weights, where they are wanted: as its process tells them, or plain's."""
        for workload in self.plan.workloads if self.plan.perplexity else ():
            items = unjudged(workload, name, self.file.lines)
            values = perplexities(workload, PLAIN, self.file.lines)
            if process is not None:
                values = process.perplexities(items) if items else {}
            self.file.append(*perplexity_lines(workload, name, items, values))

    def _take(self, due: Due, all_due: Sequence[Due]) -> None:
        """One turn, its lines written at its end."""
        done = self.file.done
        sizes = [(len(each.workload.items), each.key in done) for each in all_due if each.method.name in self.processes]
        num_done = sum(size for size, is_done in sizes if is_done)
        text = f"round {due.round + 1} of {self.plan.rounds}: {due.workload.name}, {due.method.name}"
        at = f" at {due.streams} streams" if due.streams > 1 else ""
        self.teller.turn(f"{text}{at}", num_done, sum(size for size, _ in sizes))
        try:
            turn = self.processes[due.method.name].turn(
                due.workload.items,
                streams=due.streams,
                max_tokens=self.plan.max_tokens,
                texts=due.round == 0 and due.streams == min(self.plan.streams),
                hear=self.teller.hear,
            )
        except WorkerError as error:
            self._drop(due, error)
            return
        if turn.taken.note is not None and due.round == 0:
            self.teller.say(f"note: {due.method.name} runs as mode full: {turn.taken.note}")
        self.file.append(*lines_of(due, turn))

    def _drop(self, due: Due, error: WorkerError) -> None:
        """Go on without a method, or not at all without plain decoding."""
        if due.method.name == PLAIN:
            raise error
        self.processes.pop(due.method.name, None)
        reason = f"{error.message} ({error.hint})"
        workload, method, streams, number = due.key
        line = FailureLine(workload=workload, method=method, item=None, streams=streams, round=number, reason=reason)
        self.file.append(line)
        self.teller.say(f"{reason}; the others go on without it")

    def _score(self) -> None:
        """Judge the answers that are not judged yet."""
        for workload in self.plan.workloads:
            scores, skipped = missing_scores(workload, self.file.lines)
            for metric, why in skipped.items():
                self.teller.say(f"note: no {metric} for {workload.name}: {why}")
            self.file.append(*scores)


def lines_of(due: Due, turn: Turn) -> Iterator[Line]:
    """A turn as lines: its answers, its failures, and last what it took."""
    workload, method, streams, number = due.key
    at: dict[str, Any] = {"workload": workload, "method": method}
    tasks = {item.name: item.task for item in due.workload.items}
    for answer in turn.answers:
        yield ItemLine(**at, streams=streams, round=number, task=tasks[answer.item], **asdict(answer))
    for failure in turn.failed:
        yield FailureLine(**at, streams=streams, round=number, item=failure.item, reason=failure.reason)
    yield TurnLine(**at, streams=streams, round=number, **asdict(turn.taken))


def _turns(plan: Plan) -> Iterator[Due]:
    """All turns of all rounds."""
    methods = {method.name: method for method in plan.methods}
    for number in range(plan.rounds):
        places = [(workload, streams) for workload in plan.workloads for streams in plan.streams]
        for place, (workload, streams) in enumerate(places):
            for name in order(list(methods), number + place):
                yield Due(workload, streams, number, methods[name])


def _facts_of(workload: Workload) -> dict[str, object]:
    return {
        "sha256": workload.sha256,
        "items": len(workload.items),
        "raw": sum(1 for item in workload.items if item.raw),
        "tasks": dict(workload.tasks),
        "metrics": list(workload.metrics),
        "refused": [asdict(each) for each in workload.refused],
    }
