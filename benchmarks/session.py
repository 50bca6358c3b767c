"""Runs entrants in turns and turns what they tell into one line a result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import BANDWIDTH_TARGET, MODELS, OFFRAMP_Q8, ROW_TARGETS, Case, Versus
from benchmarks.environment import env_python, model_path
from benchmarks.machine import load
from benchmarks.ratios import Ratio, paired_ratio
from benchmarks.worker import Entrant, Worker, WorkerError

Json = dict[str, Any]
Samples = dict[tuple[str, Entrant], list[Json]]
"""(case name, entrant) -> one reply a round."""


class Session:
    """The workers of one run, each started when a case first wants it. Close it."""

    def __init__(self, environments: Path, offramp_python: Path, *, threads: int) -> None:
        self._environments = environments
        self._offramp_python = offramp_python
        self._threads = threads
        self._workers: dict[Entrant, Worker] = {}
        self.facts: dict[Entrant, Json] = {}  # what loaded peers tell about themselves
        self.missing: dict[Entrant, str] = {}  # why the others are not measured

    def measure(self, group: Sequence[Case], rounds: int, each_round: Callable[[], None] | None = None) -> Samples:
        """All entrants of all cases in each round, one right after the other; who begins a case rotates.

        An entrant that fails is dropped from then on, and `missing` says why.
        """
        self._warm(group)
        samples: Samples = {}
        for number in range(rounds):
            if each_round is not None:
                each_round()
            for case in group:
                entrants = [entrant for entrant in case.entrants if entrant in self._workers]
                start = number % max(1, len(entrants))
                for entrant in entrants[start:] + entrants[:start]:
                    reply = self._try(entrant, lambda worker: worker.run(case.request(number)))  # noqa: B023
                    if reply is not None:
                        samples.setdefault((case.name, entrant), []).append(reply)
            note(f"  round {number + 1} of {rounds}")
        return samples

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _warm(self, group: Sequence[Case]) -> None:
        for case in group:
            for entrant in case.entrants:
                if self._start(entrant):
                    reply = self._try(entrant, lambda worker: worker.warm(case.request(-1)))  # noqa: B023
                    if reply:
                        self.facts[entrant].setdefault("variants", {})[case.name] = reply

    def _start(self, entrant: Entrant) -> bool:
        if entrant in self._workers or entrant in self.missing:
            return entrant in self._workers
        own = entrant.peer == "offramp"
        python = self._offramp_python if own else env_python(self._environments, entrant.peer)
        model = model_path(self._environments, MODELS[entrant])
        for path, what in ((python, "no environment"), (model, "no model file")):
            if not path.exists():
                self._drop(entrant, f"{what}: {path.name if path == model else path.parent.parent.name}")
                return False
        log = self._environments / "logs" / f"{entrant.name.replace(' ', '-')}.log"
        self._workers[entrant] = Worker(entrant, python, threads=self._threads, log=log)
        facts = self._try(entrant, lambda worker: worker.load(str(model)))
        if facts is not None:
            self.facts[entrant] = facts
            note(f"  {entrant.name}: {facts['version']}")
        return facts is not None

    def _try(self, entrant: Entrant, ask: Callable[[Worker], Json]) -> Json | None:
        """An answer; None when the entrant failed, which drops it."""
        try:
            return ask(self._workers[entrant])
        except WorkerError as error:
            self._workers.pop(entrant).close()
            self._drop(entrant, str(error))
            return None

    def _drop(self, entrant: Entrant, reason: str) -> None:
        self.missing[entrant] = reason
        note(f"  {entrant.name} is missing: {reason}")


def comparisons(case: Case, samples: Samples) -> Iterator[Json]:
    """One result a pair of which both ran all rounds."""
    for pair in case.versus:
        ours, theirs = samples.get((case.name, pair.ours), []), samples.get((case.name, pair.theirs), [])
        if ours and len(ours) == len(theirs):
            yield _comparison(case, pair, ours, theirs)


def _comparison(case: Case, pair: Versus, ours: list[Json], theirs: list[Json]) -> Json:
    mine, peers = seconds_of(case, ours), seconds_of(case, theirs)
    result: Json = {
        "result": "comparison",
        "case": case.name,
        "title": case.title,
        "metric": case.metric,
        "ours": _side(pair.ours, case, ours),
        "theirs": _side(pair.theirs, case, theirs),
        "ratio": ratio_json(paired_ratio(peers, mine)),
        "target": pair.target,
        "stretch": pair.stretch,
        "rounds": len(ours),
    }
    if case.kind == "generate":
        result["end_to_end_ratio"] = ratio_json(
            paired_ratio([reply["total"] for reply in theirs], [reply["total"] for reply in ours])
        )
        result["equal_tokens"] = round(median(map(equal_share, ours, theirs)), 3)
    return result | {"load": load()}


def _side(entrant: Entrant, case: Case, replies: list[Json]) -> Json:
    seconds = seconds_of(case, replies)
    side: Json = {"peer": entrant.peer, "weights": entrant.weights, "seconds": [round(value, 7) for value in seconds]}
    rate = case.streams * case.prompt_len if case.metric == "prefill" else 1
    side |= {"median_ms": round(1000 * median(seconds), 4)}
    if case.metric != "row":
        side["tokens_per_s"] = round(rate / median(seconds), 2)
    if case.kind == "generate":
        totals = [reply["total"] for reply in replies]
        side |= {"end_to_end_s": round(median(totals), 5), "totals": [round(total, 5) for total in totals]}
    if "variant" in replies[0]:
        side["variant"] = replies[0]["variant"]
    return side


def seconds_of(case: Case, replies: list[Json]) -> list[float]:
    """What a case is about, a round: seconds a decoded token (of all streams), of the prompt, or of one call."""
    if case.metric == "row":
        return [median(reply["seconds"]) for reply in replies]
    if case.metric == "prefill":
        return [reply["first"] for reply in replies]
    return [(reply["total"] - reply["first"]) / reply["decoded"] for reply in replies]


def equal_share(one: Json, other: Json) -> float:
    """How much of the first stream's tokens agrees up to the first difference: weights of one origin agree long."""
    pairs = list(zip(one["tokens"][0], other["tokens"][0], strict=True))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs)) / len(pairs)


def row_scaling(cases: Sequence[Case], samples: Samples) -> Iterator[Json]:
    """How many times one row's time several rows of one call take, for each entrant."""
    [one] = [case for case in cases if case.rows == 1]
    for case in cases:
        for entrant in case.entrants if case.rows > 1 else ():
            many, single = samples.get((case.name, entrant), []), samples.get((one.name, entrant), [])
            if many and len(many) == len(single):
                target, stretch = ROW_TARGETS.get(case.rows, (None, None)) if entrant == OFFRAMP_Q8 else (None, None)
                times = paired_ratio(seconds_of(case, many), seconds_of(one, single))
                facts: Json = {"peer": entrant.peer, "weights": entrant.weights, "rows": case.rows}
                facts |= {"times_one_row": ratio_json(times), "target": target, "stretch": stretch}
                yield {"result": "rows", **facts, "rounds": len(many), "load": load()}


def bandwidth_share(one: Case, samples: Samples, weight_bytes: int, bandwidths: list[float]) -> Json:
    """The part of the measured read bandwidth that one q8 row reaches, counting its weights alone."""
    seconds = seconds_of(one, samples[one.name, OFFRAMP_Q8])
    share = paired_ratio([weight_bytes / value for value in seconds], bandwidths)
    return {
        "result": "bandwidth",
        "weight_bytes": weight_bytes,
        "gb_per_s": [round(value / 1e9, 2) for value in bandwidths],
        "median_gb_per_s": round(median(bandwidths) / 1e9, 2),
        "share": ratio_json(share),
        "target": BANDWIDTH_TARGET[0],
        "stretch": BANDWIDTH_TARGET[1],
        "rounds": len(seconds),
        "load": load(),
    }


def ratio_json(ratio: Ratio) -> Json:
    return {"median": round(ratio.median, 4), "low": round(ratio.low, 4), "high": round(ratio.high, 4)}


def note(text: str) -> None:
    """To the terminal; results go to a file and to standard output."""
    print(text, file=sys.stderr, flush=True)
