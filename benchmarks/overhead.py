"""What a step costs besides the model: CPU milliseconds of planning, packing, judging, committing and text.

The front door streams to some readers at once, over an executor that answers instantly and over the real one. Counted
is the CPU time of the thread that steps, so that neighbours on the machine hardly matter; time inside the executor is
taken off, and time inside the draw kernel is shown apart: the rest is Python. Bound by interpreter calls, a few hundred
a row; sampling by passes over the vocabulary.

    python -m benchmarks.overhead --model smollm2-135m
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from offramp.bench.provenance import provenance
from offramp.core import Ids, Rows, SamplingParams
from offramp.llm.llm import LLM
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.serving import Serving
from offramp.model.config import ModelConfig
from offramp.model.executor import FINAL, HeadId, Hidden, LayerExecutor, LogitSummary, Top
from offramp.model.heads import HeadWeights
from offramp.model.hidden import ArrayHidden
from offramp.model.tensors import LayerWeights

P = ParamSpec("P")
R = TypeVar("R")

BATCHES = (1, 8, 32)
WARM_UP_STEPS = 8
PROMPT_LEN = 12
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, ignore_eos=True),
    "top-p": SamplingParams(temperature=0.8, top_p=0.95, ignore_eos=True, seed=1),
}


class Stopwatch:
    """CPU seconds of this thread spent within watched calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, call: Callable[P, R]) -> Callable[P, R]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            begin = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - begin

        return timed


class Instant:
    """`LayerExecutor` whose answers lie ready: normal logits with a few likely tokens, another row each time."""

    def __init__(self, config: ModelConfig, num_pages: int, most_rows: int) -> None:
        random = np.random.default_rng(0)
        self.config = config
        self.num_pages = num_pages
        self._hidden = np.zeros((most_rows, config.hidden_size), np.float32)
        self._logits = random.normal(0.0, 2.0, (most_rows + 16, config.vocab_size)).astype(np.float32)
        for row in self._logits:
            row[random.integers(0, config.vocab_size, 40)] += np.linspace(6, 14, 40, dtype=np.float32)
        self._turn = 0

    def embed(self, rows: Rows) -> ArrayHidden:
        return ArrayHidden(self._hidden[: len(rows)])

    def run_layers(self, h: Hidden, rows: Rows, start: int, stop: int) -> ArrayHidden:
        return ArrayHidden(self._hidden[: len(rows)])

    def fill(self, h: Hidden, rows: Rows, start: int, stop: int) -> None:
        pass

    def logits(self, h: Hidden, head: HeadId = FINAL, vocab_ids: Ids | None = None) -> NDArray[np.float32]:
        self._turn = (self._turn + 1) % 16
        return self._logits[self._turn : self._turn + len(h)]

    def top(self, h: Hidden, k: int, head: HeadId = FINAL) -> Top:
        raise AssertionError("the engine does not call this")

    def summarize(self, h: Hidden, head: HeadId = FINAL) -> LogitSummary:
        raise AssertionError("the engine does not call this")

    def copy_slots(self, source: Ids, target: Ids) -> None:
        pass

    def add_head(self, weights: HeadWeights) -> HeadId:
        raise AssertionError("the engine does not call this")

    def head_ids(self, head: HeadId) -> Ids | None:
        return None

    def add_side_layer(self, weights: LayerWeights) -> int:
        raise AssertionError("the engine does not call this")


class Watched:
    """A real executor whose calls are timed."""

    def __init__(self, executor: LayerExecutor, watch: Stopwatch) -> None:
        self.config = executor.config
        self.num_pages = executor.num_pages
        self.embed = watch.watch(executor.embed)
        self.run_layers = watch.watch(executor.run_layers)
        self.fill = watch.watch(executor.fill)
        self.logits = watch.watch(executor.logits)
        self.top = watch.watch(executor.top)
        self.summarize = watch.watch(executor.summarize)
        self.copy_slots = watch.watch(executor.copy_slots)
        self.add_head = watch.watch(executor.add_head)
        self.head_ids = watch.watch(executor.head_ids)
        self.add_side_layer = watch.watch(executor.add_side_layer)


def watch_draw(watch: Stopwatch) -> None:
    """Time the draw kernel where the engine calls it."""
    from offramp.native import sampling

    for name in ("draw_token",):
        setattr(sampling, name, watch.watch(getattr(sampling, name)))


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU milliseconds of one step without the executor."""

    python_ms: float
    draw_ms: float


def measure(
    loaded: LoadedModel, model: Stopwatch, draw: Stopwatch, params: SamplingParams, batch: int, steps: int
) -> Cost:
    """Steps of decoding for `batch` readers."""
    llm = LLM.from_loaded(loaded, Serving(max_num_seqs=batch, draft="off"))
    asked = replace(params, max_tokens=WARM_UP_STEPS + steps + 8)
    streams = [llm.stream([100 + n + i for i in range(PROMPT_LEN)], asked) for n in range(batch)]
    for _ in range(WARM_UP_STEPS):
        for stream in streams:
            next(stream)
    begin, in_model, in_draw = time.thread_time(), model.seconds, draw.seconds
    for _ in range(steps):
        for stream in streams:
            next(stream)
    whole = time.thread_time() - begin - (model.seconds - in_model)
    drawing = draw.seconds - in_draw
    llm.close()
    return Cost(1000 * (whole - drawing) / steps, 1000 * drawing / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--instant-only", action="store_true", help="leave the real executor out")
    options = parser.parse_args()

    loaded = load_model(options.model, max_context=512, max_num_seqs=max(BATCHES))
    model, draw = Stopwatch(), Stopwatch()
    watch_draw(draw)
    executors: dict[str, LayerExecutor] = {"instant": Instant(loaded.config, loaded.executor.num_pages, 512)}
    if not options.instant_only:
        executors["real"] = Watched(loaded.executor, model)
    costs: dict[tuple[str, str, int], list[Cost]] = {}
    for _ in range(options.runs):
        for name, executor in executors.items():
            for how, params in SAMPLINGS.items():
                for batch in BATCHES:
                    case = replace(loaded, executor=executor)
                    cost = measure(case, model, draw, params, batch, options.steps)
                    costs.setdefault((name, how, batch), []).append(cost)
    results = [_result(*key, runs) for key, runs in costs.items()]
    for result in results:
        print(
            f"{result['executor']:8} {result['sampling']:7} batch {result['batch']:3}: "
            f"Python {result['python_ms']:.3f} ms {result['python_range']}, draw {result['draw_ms']:.3f} ms",
            file=sys.stderr,
        )
    print(
        json.dumps(
            {"benchmark": "overhead", "model": loaded.name, **provenance(), "steps": options.steps, "results": results}
        )
    )


def _result(executor: str, how: str, batch: int, runs: list[Cost]) -> dict[str, str | int | float | list[float]]:
    python = sorted(cost.python_ms for cost in runs)
    return {
        "executor": executor,
        "sampling": how,
        "batch": batch,
        "python_ms": round(median(python), 4),
        "python_range": [round(python[0], 4), round(python[-1], 4)],
        "draw_ms": round(median(cost.draw_ms for cost in runs), 4),
        "runs": len(runs),
    }


if __name__ == "__main__":
    main()
