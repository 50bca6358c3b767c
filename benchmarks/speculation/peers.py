"""Prompt lookup as peers have it, each against its own plain decoding, on some of the same prompts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.environment import env_python, model_path
from benchmarks.machine import load
from benchmarks.session import Json, note, ratio_json
from benchmarks.speculation.contestant import AUTO, PLAIN
from benchmarks.speculation.prompts import Prompt, subset
from benchmarks.speculation.rates import Runs, speed_ratio
from benchmarks.speculation.summary import decoding, task_groups
from benchmarks.speculation.turns import Samples
from benchmarks.worker import Entrant, Worker, WorkerError
from offramp.bench.run.rounds import order


@dataclass(frozen=True, slots=True)
class LookupPeer:
    """A worker, what it runs, and how much of the measurement it takes part in."""

    peer: str  # its environment
    worker: str
    weights: str
    model: str
    lookups: tuple[int, ...]  # draft tokens of each variant
    prompts_per_task: int
    new_tokens: int


PEERS = (
    LookupPeer("llama", "llama_lookup", "Q8_0", "Q8_0", (2, 10), prompts_per_task=4, new_tokens=128),
    LookupPeer("transformers", "transformers_lookup", "F32", "f32 folder", (10,), prompts_per_task=2, new_tokens=64),
)
"""transformers is slow: it gets fewer prompts and shorter answers."""

MOST_SECONDS = 170.0
"""For one peer's prompts; those that do not fit any more are left out, and the page says so."""

Replies = dict[int, list[Json]]
"""Draft tokens (0: plain) -> a reply a prompt."""
Pair = tuple[Runs, Runs]
"""Plain and drafted."""


class Lookups:
    """Runs peers one after the other and tells what came of it."""

    def __init__(self, environments: Path, *, threads: int, eos: Sequence[int], most_tokens: int | None = None) -> None:
        self._environments = environments
        self._threads = threads
        self._eos = list(eos)
        self._most_tokens = most_tokens

    def lines(self, peer: LookupPeer, prompts: Sequence[Prompt], own: Samples) -> Iterator[Json]:
        """What the peer says of itself and a line a variant and task; or why it is missing.

        `own` are our samples of the same prompts, to set auto's ratio on those that the peer ran beside the peer's.
        """
        python = env_python(self._environments, peer.peer)
        model = model_path(self._environments, peer.model)
        names = {"peer": peer.peer, "weights": peer.weights}
        for path, what in ((python, f"no environment: {peer.peer}"), (model, f"no model file: {model.name}")):
            if not path.exists():
                yield self._missing(names, what)
                return
        places = subset(prompts, peer.prompts_per_task)
        chosen = [prompts[place] for place in places]
        log = self._environments / "logs" / f"{peer.worker}.log"
        worker = Worker(Entrant(peer.worker, peer.weights), python, threads=self._threads, log=log)
        try:
            facts = worker.load(str(model))
            replies = self._ask(worker, peer, chosen)
        except WorkerError as error:
            yield self._missing(names, str(error))
        else:
            done = places[: len(replies[0])]
            yield {"result": "peer", **names, **facts, "prompts": len(done), "prompts_chosen": len(places)}
            for line in lookup_lines(replies, [prompts[place].task for place in done], own_pair(own, done)):
                yield line | names | {"new_tokens": self._new_tokens(peer)}
        finally:
            worker.close()

    def _ask(self, worker: Worker, peer: LookupPeer, prompts: Sequence[Prompt]) -> Replies:
        variants = ["0", *map(str, peer.lookups)]
        replies: Replies = {int(variant): [] for variant in variants}
        context = max(len(prompt.token_ids) for prompt in prompts) + self._new_tokens(peer) + 16
        began = time.monotonic()
        for place, prompt in enumerate(prompts):
            if place and time.monotonic() - began > MOST_SECONDS:
                break
            case = {"kind": "lookup", "prompt": prompt.token_ids, "new_tokens": self._new_tokens(peer)}
            case |= {"eos": self._eos, "context": context}
            for variant in order(variants, place):
                if place == 0:
                    worker.warm(case | {"lookup": int(variant)})
                replies[int(variant)].append(worker.run(case | {"lookup": int(variant)}))
        note(f"  {peer.worker}: {len(replies[0])} of {len(prompts)} prompts, {len(variants)} variants")
        return replies

    def _new_tokens(self, peer: LookupPeer) -> int:
        return peer.new_tokens if self._most_tokens is None else min(peer.new_tokens, self._most_tokens)

    def _missing(self, names: dict[str, str], reason: str) -> Json:
        note(f"  {names['peer']} is missing: {reason}")
        return {"result": "missing", **names, "reason": reason}


def own_pair(own: Samples, places: Sequence[int]) -> Pair | None:
    """Our plain and auto runs of these prompts; None when they were not measured."""
    if not own.get(AUTO.name):
        return None
    return decoding(own[PLAIN.name])[:, places], decoding(own[AUTO.name])[:, places]


def lookup_lines(replies: Replies, tasks: Sequence[str], own: Pair | None) -> Iterator[Json]:
    """A line a variant and task. Rows of one call round differently there, so some answers differ: `equal` says."""
    plain = replies[0]
    for lookup, told in replies.items():
        for task, groups in task_groups(tasks).items() if lookup else ():
            members = [place for group in groups for place in group]
            if any(sum(side[place]["decoded"] for place in members) == 0 for side in (plain, told)):
                continue
            before, after = ([side[place] for place in members] for side in (plain, told))
            yield {
                "result": "lookup",
                "lookup": lookup,
                "task": task,
                "prompts": len(members),
                "ratio": ratio_json(speed_ratio(_decoding(plain), _decoding(told), groups)),
                "end_to_end": ratio_json(speed_ratio(_whole(plain), _whole(told), groups)),
                "plain_tokens_per_s": _tokens_per_s(before),
                "tokens_per_s": _tokens_per_s(after),
                "ours": None if own is None else ratio_json(speed_ratio(*own, groups)),
                "equal": sum(a["tokens"] == b["tokens"] for a, b in zip(before, after, strict=True)),
                "load": load(),
            }


def _decoding(replies: Sequence[Json]) -> Runs:
    return np.array([[(reply["total"] - reply["first"], reply["decoded"]) for reply in replies]], dtype=np.float64)


def _whole(replies: Sequence[Json]) -> Runs:
    return np.array([[(reply["total"], len(reply["tokens"])) for reply in replies]], dtype=np.float64)


def _tokens_per_s(replies: Sequence[Json]) -> float:
    seconds, tokens = _decoding(replies).sum(axis=(0, 1)).tolist()
    return round(float(tokens / seconds), 2)
