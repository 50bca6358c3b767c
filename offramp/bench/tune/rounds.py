"""Methods over the same prompts, beside plain decoding: what their turns took, and whether their tokens are its."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from offramp.bench.run.method import Method
from offramp.bench.tune.compare import Pair, Timed, ratio
from offramp.errors import InvalidRequestError, OfframpError
from offramp.llm.serving import LOSSLESS
from offramp.quality.rouge import rouge_l


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """A method's turn. Prompts by their numbers."""

    timed: Timed
    answers: Mapping[int, tuple[int, ...]]  # token ids
    failed: Mapping[int, str] = field(default_factory=dict)  # why there is none
    note: str | None = None  # why the method did not run in its mode


class Stand(Protocol):
    """Where methods run, and a clock."""

    @property
    def budget_seconds(self) -> float:
        """For all of it."""
        ...

    @property
    def start_seconds(self) -> float:
        """What the latest method took to start."""
        ...

    def take(self, method: Method, prompts: Sequence[int]) -> Turned:
        """One turn; starts the method first if need be. Raises OfframpError for one that does not run."""
        ...

    def end(self, method: Method) -> None:
        """Free what it holds."""
        ...

    def seconds_left(self) -> float:
        """Of the budget, less a margin; may fall below 0."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of each, over so many prompts."""

    num_prompts: int
    timed: Mapping[str, Timed]  # by method


@dataclass(slots=True)
class Likeness:
    """How near a method's answers are to those of plain decoding with the first weights."""

    count: int = 0
    equal: int = 0
    rouge_l: float = 0.0  # summed

    def add(self, answer: Sequence[int], plain: Sequence[int]) -> None:
        self.count += 1
        self.equal += answer == plain
        self.rouge_l += rouge_l(answer, plain)

    def __str__(self) -> str:
        return f"{self.equal / self.count:.0%} of the answers equal, ROUGE-L {self.rouge_l / self.count:.2f}"


class Rounds:
    """All rounds so far. A method with a fault, or with other tokens than it promises, has no further turn."""

    def __init__(self, stand: Stand, plains: Sequence[Method], num_prompts: int, streams: int) -> None:
        """`plains` is plain decoding with each weight format; all are compared with the first."""
        self.plain = plains[0]
        self.streams = min(streams, num_prompts)
        self.faults: dict[str, str] = {}  # by method
        self.unanswered: dict[int, str] = {}  # prompts that plain decoding can't answer
        self.likeness: dict[str, Likeness] = {}  # of methods whose tokens may differ
        self.rounds: list[Round] = []
        self._stand = stand
        self._plains = {(method.flags.weights, method.flags.kv): method for method in plains}
        self._started: dict[str, Method] = {}
        self._prompts = list(range(num_prompts))
        self._next = 0

    def play(self, methods: Sequence[Method], count: int) -> None:
        """One round over the next prompts, of which one can be answered. Raises what plain decoding raises."""
        while not self._played(methods, self._take(count)):
            pass

    def _played(self, methods: Sequence[Method], prompts: Sequence[int]) -> bool:
        """Play a round; it counts unless plain decoding answers nothing."""
        turned: dict[str, Turned] = {}
        order = self.with_plains(methods)
        for method in order if len(self.rounds) % 2 == 0 else reversed(order):
            self._turn(method, prompts, turned)
        first = turned[self.plain.name]
        self.unanswered |= first.failed
        for method in order:
            self._check(method, turned)
        if first.answers:
            timed = {name: each.timed for name, each in turned.items() if name not in self.faults}
            self.rounds.append(Round(len(first.answers), timed))
        return bool(first.answers)

    def with_plains(self, methods: Iterable[Method]) -> list[Method]:
        """Those that work, behind the plain ones that they are compared with."""
        working = [method for method in methods if method.name not in self.faults]
        plains = [self.plain, *(self._plain_of(method) for method in working)]
        return list({method.name: method for method in (*plains, *working)}.values())

    def keep(self, methods: Iterable[Method]) -> None:
        """End all others."""
        kept = {method.name for method in self.with_plains(methods)}
        for name in [name for name in self._started if name not in kept]:
            self._stand.end(self._started.pop(name))

    def pairs(self, first: str, second: str, since: int = 0) -> list[Pair]:
        """Turns of both in the same rounds."""
        played = [each.timed for each in self.rounds[since:]]
        return [(timed[first], timed[second]) for timed in played if first in timed and second in timed]

    def ratio(self, name: str, since: int = 0) -> float:
        """Speed over that of plain decoding, in all rounds of the method from that one on; 0 if it had none."""
        pairs = self.pairs(self.plain.name, name, since)
        return ratio(pairs) if pairs else 0.0

    def num_prompts(self, name: str) -> int:
        """That it answered."""
        return sum(each.num_prompts for each in self.rounds if name in each.timed)

    def predicted(self, methods: Sequence[Method]) -> tuple[float, float]:
        """Seconds until all of them run, and seconds for a prompt answered by each."""
        order = self.with_plains(methods)
        new = sum(1 for method in order if method.name not in self._started)
        return new * self._stand.start_seconds, sum(self._seconds_each(method.name) for method in order)

    def seconds_left(self) -> float:
        """Of the budget."""
        return self._stand.seconds_left()

    def seconds_spent(self) -> float:
        """Of the budget, with the margin."""
        return self._stand.budget_seconds - self._stand.seconds_left()

    def _seconds_each(self, name: str) -> float:
        """For a prompt; plain decoding's of a method that had no turn yet."""
        played = [(each.timed[name].seconds, each.num_prompts) for each in self.rounds if name in each.timed]
        if not played:
            return self._seconds_each(self.plain.name)
        return sum(seconds for seconds, _ in played) / sum(count for _, count in played)

    def _take(self, count: int) -> list[int]:
        """The next prompts, again from the first when all had their turn."""
        left = [prompt for prompt in self._prompts if prompt not in self.unanswered]
        if not left:
            reason = next(iter(self.unanswered.values()))
            hint = "give other prompts"
            raise InvalidRequestError(f"the model can answer no prompt: {reason}", hint=hint, param="prompts")
        taken = [left[(self._next + place) % len(left)] for place in range(min(count, len(left)))]
        self._next += len(taken)
        return taken

    def _turn(self, method: Method, prompts: Sequence[int], turned: dict[str, Turned]) -> None:
        self._started[method.name] = method
        try:
            turned[method.name] = self._stand.take(method, prompts)
        except OfframpError as error:
            if method.name == self.plain.name:
                raise
            self._started.pop(method.name)
            self.faults[method.name] = error.message

    def _check(self, method: Method, turned: Mapping[str, Turned]) -> None:
        """Note a fault of a method whose answers are not what it promises."""
        first, own, plain = turned[self.plain.name], turned.get(method.name), turned.get(self._plain_of(method).name)
        if own is None or own is first:
            return
        failed = [reason for prompt, reason in own.failed.items() if prompt not in first.failed]
        if plain is None:
            self.faults[method.name] = "plain decoding with its weights does not run"
        elif failed or own.note is not None:
            self.faults[method.name] = failed[0] if failed else f"it runs all layers: {own.note}"
        elif method.flags.mode == LOSSLESS and any(own.answers.get(key) != ids for key, ids in plain.answers.items()):
            self.faults[method.name] = "its tokens are not those of plain decoding"
        elif plain is not first or method.flags.mode != LOSSLESS:
            likeness = self.likeness.setdefault(method.name, Likeness())
            for prompt, answer in first.answers.items():
                likeness.add(own.answers[prompt], answer)

    def _plain_of(self, method: Method) -> Method:
        return self._plains[method.flags.weights, method.flags.kv]
