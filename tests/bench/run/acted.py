"""Runs without a model: processes that act, and a teller that keeps what it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, Self

from offramp.bench.results.lines import CostLine
from offramp.bench.run.method import Method, methods_of
from offramp.bench.run.process import MethodProcess, WorkerError
from offramp.bench.run.rounds import Plan
from offramp.bench.run.turn import Answered, Facts, Hear, Heard, Taken, Turn
from offramp.bench.workloads.item import Item, Workload
from offramp.llm.model_flags import ModelFlags

ITEMS = (
    Item(name="one", task="a", content="say red", references=("red",), metrics=("contains",)),
    Item(name="two", task="b", content="say blue"),
)
FACTS = Facts(
    model="toy",
    source_hash="hash",
    weights={"q8": 1},
    kv="f16",
    threads=1,
    kernels="avx2",
    num_layers=4,
    max_context=256,
    chat=True,
    large_pages=False,
)
TAKEN = Taken(
    seconds=1.0, prompt_tokens=4, output_tokens=4, decode_seconds=0.5, decoded_tokens=2, peak_bytes=1, joules=None
)


def workload(name: str = "w", items: tuple[Item, ...] = ITEMS) -> Workload:
    return Workload(name=name, items=items, metrics=("contains",), sha256=f"sha of {name}")


def plan(*methods: str, rounds: int = 2, streams: tuple[int, ...] = (1,), workloads: int = 1) -> Plan:
    return Plan(
        model="toy",
        methods=methods_of(methods, ModelFlags()),
        workloads=[workload(f"w{number}") for number in range(workloads)],
        streams=streams,
        rounds=rounds,
        max_tokens=64,
    )


class Silent:
    """A teller that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.turns: list[tuple[str, int, int]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def turn(self, text: str, num_done: int, num_all: int) -> None:
        self.turns.append((text, num_done, num_all))

    def hear(self, heard: Heard) -> None:
        pass


class Stage:
    """Makes processes that are none, and writes down who did what. `fails` says in which turn of its own who fails."""

    def __init__(
        self,
        *,
        fails: dict[str, int] | None = None,
        facts: Facts = FACTS,
        note: str | None = None,
        costs: Literal["all", "none", "error"] = "all",
    ) -> None:
        self.fails = fails or {}
        self.facts = facts
        self.note = note
        self.costs = costs
        self.log: list[tuple[str, ...]] = []
        self.num_turns: Counter[str] = Counter()
        self.open: set[str] = set()

    def __call__(self, method: Method, model: str) -> MethodProcess:
        return Actor(method, model, self)


class Actor(MethodProcess):
    """One of them. Turn 0 is its load, turn 1 warms it."""

    def __init__(self, method: Method, model: str, stage: Stage) -> None:
        super().__init__(method, model)
        self.stage = stage

    @property
    def facts(self) -> Facts:
        return self.stage.facts

    def __enter__(self) -> Self:
        self._count()
        self.stage.open.add(self.method.name)
        return self

    def turn(
        self,
        items: Sequence[Item],
        *,
        streams: int = 1,
        max_tokens: int,
        texts: bool = False,
        ignore_eos: bool = False,
        hear: Hear = lambda heard: None,
    ) -> Turn:
        self._count()
        self.stage.log.append((self.method.name, str(streams), str(max_tokens)))
        text = ("red" if self.method.name == "plain" else "green") if texts else None
        answers = tuple(
            Answered(
                item=item.name,
                prompt_tokens=2,
                token_ids=(1, 2),
                finish_reason="stop",
                first_seconds=0.5,
                steps=((500.0, 1), (1000.0, 1)),
                text=text,
            )
            for item in items
        )
        taken = Taken(**{name: getattr(TAKEN, name) for name in TAKEN.__slots__} | {"note": self.stage.note})
        return Turn(taken=taken, answers=answers, failed=())

    def costs(self, *, row_counts: Sequence[int], context: int) -> list[CostLine]:
        self.stage.log.append((self.method.name, "costs"))
        if self.stage.costs == "none":
            return []
        if self.stage.costs == "error":
            raise WorkerError("method plain: no room", hint="look")
        return [CostLine(rows=count, context=context, measured_ms=1.0, predicted_ms=1.0) for count in row_counts]

    def perplexities(self, items: Sequence[Item]) -> dict[str, float]:
        self.stage.log.append((self.method.name, "perplexities"))
        return {item.name: 3.0 if self.method.name == "plain" else 4.0 for item in items}

    def close(self) -> None:
        self.stage.open.discard(self.method.name)

    def _count(self) -> None:
        name = self.method.name
        self.stage.num_turns[name] += 1
        if self.stage.fails.get(name) == self.stage.num_turns[name] - 1:
            raise WorkerError(f"method {name}: gone", hint="look")
