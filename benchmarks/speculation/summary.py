"""Samples become one line a result: speeds, acceptance, where the time went, and what the cost model had predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from benchmarks.machine import load
from benchmarks.session import Json, ratio_json
from benchmarks.speculation.contestant import AUTO, PLAIN, STREAMS, Method, Sample
from benchmarks.speculation.prompts import TASKS
from benchmarks.speculation.rates import Runs, speed_ratio
from benchmarks.speculation.turns import Samples

ALL = "all six tasks"


def task_groups(tasks: Sequence[str]) -> dict[str, list[list[int]]]:
    """What is summed up: each task, and all of Spec-Bench's, as places of prompts by task."""
    places = {task: [place for place, each in enumerate(tasks) if each == task] for task in dict.fromkeys(tasks)}
    single = {task: [found] for task, found in places.items()}
    spec_bench = [places.get(task, []) for task in TASKS]
    return ({ALL: spec_bench} if all(spec_bench) else {}) | single


def method_lines(samples: Samples, tasks: Sequence[str]) -> Iterator[Json]:
    """A line for each method and task against plain decoding. A task in which nothing was decoded has none."""
    for name, rounds in samples.items():
        if name == PLAIN.name or not rounds:
            continue
        plain = samples[PLAIN.name][: len(rounds)]
        for task, groups in task_groups(tasks).items():
            members = list(chain.from_iterable(groups))
            if all(sum(runs[place].decoded for place in members) for runs in chain(plain, rounds)):
                facts = {"method": name, "task": task, "prompts": len(members)}
                yield {"result": "method", **facts, **compare(plain, rounds, groups), "load": load()}


def stream_line(samples: Samples, method: Method = AUTO) -> Json:
    """Many streams at once: tokens of all together."""
    compared = compare(samples[PLAIN.name], samples[method.name], [[0]])
    return {"result": "streams", "method": method.name, "streams": STREAMS, **compared, "load": load()}


def compare(plain: list[list[Sample]], other: list[list[Sample]], groups: list[list[int]]) -> Json:
    """One method against plain decoding, both on the same prompts in the same rounds."""
    members = list(chain.from_iterable(groups))
    before = [runs[place] for runs in plain for place in members]
    after = [runs[place] for runs in other for place in members]
    return {
        "ratio": ratio_json(speed_ratio(decoding(plain), decoding(other), groups)),
        "end_to_end": ratio_json(speed_ratio(whole(plain), whole(other), groups)),
        "plain_tokens_per_s": round(tokens_per_s(before), 2),
        "tokens_per_s": round(tokens_per_s(after), 2),
        "plain_decode_s": _by_round(plain, members),
        "decode_s": _by_round(other, members),
        "rounds": len(other),
        **acceptance(after),
        "ms_per_step": step_shares(after),
        "plain_ms_per_step": step_shares(before),
        **_prediction(before, after),
    }


def acceptance(samples: Sequence[Sample]) -> Json:
    """Of all drafts while decoding; the mean acceptance length counts all tokens of the steps in which they ran."""
    drafted = _total(sample.counts.drafted for sample in samples)
    accepted = _total(sample.counts.accepted for sample in samples)
    drafts = sum(sample.counts.drafts for sample in samples)
    emitted = sum(sample.counts.emitted for sample in samples)
    steps = sum(sample.counts.steps for sample in samples)
    depth = max(drafted, default=-1) + 1
    return {
        "steps": steps,
        "tokens_per_step": round(sum(sample.decoded for sample in samples) / max(1, steps), 3),
        "num_drafts": drafts,
        "num_draft_tokens": drafted.total(),
        "num_accepted_tokens": accepted.total(),
        "num_draft_tokens_per_pos": [drafted[position] for position in range(depth)],
        "num_accepted_tokens_per_pos": [accepted[position] for position in range(depth)],
        "mean_acceptance_length": round(emitted / drafts, 3) if drafts else None,
    }


def decoding(rounds: list[list[Sample]]) -> Runs:
    """Seconds and tokens after the first."""
    return np.array([[(sample.decode_s, sample.decoded) for sample in runs] for runs in rounds], dtype=np.float64)


def whole(rounds: list[list[Sample]]) -> Runs:
    """Seconds and tokens from the start."""
    return np.array([[(sample.total, sample.tokens) for sample in runs] for runs in rounds], dtype=np.float64)


def _prediction(before: Sequence[Sample], after: Sequence[Sample]) -> Json:
    """Speed-ups of the executor's part alone, predicted before each step and reached."""
    predicted = sum(sample.predicted_s for sample in after)
    plain = sum(sample.plain_step_s * sample.decoded for sample in after)
    reached = _run_s_a_token(before) / _run_s_a_token(after)
    one_stream = all(len(sample.token_ids) == 1 for sample in after)
    return {"predicted": round(plain / predicted, 4) if one_stream else None, "executor_ratio": round(reached, 4)}


def step_shares(samples: Sequence[Sample]) -> Json:
    """Milliseconds of a step: proposing and choosing, the executor, all else."""
    steps = max(1, sum(sample.counts.steps for sample in samples))
    draft = sum(sample.counts.draft_s for sample in samples)
    run = sum(sample.counts.run_s for sample in samples)
    whole = sum(sample.counts.step_s for sample in samples)
    seconds = {"draft": draft, "run": run, "rest": whole - draft - run}
    return {part: round(1000 * value / steps, 4) for part, value in seconds.items()}


def tokens_per_s(samples: Sequence[Sample]) -> float:
    """While decoding, all samples together."""
    return sum(sample.decoded for sample in samples) / sum(sample.decode_s for sample in samples)


def _by_round(rounds: list[list[Sample]], members: Sequence[int]) -> list[float]:
    return [round(sum(runs[place].decode_s for place in members), 5) for runs in rounds]


def _run_s_a_token(samples: Sequence[Sample]) -> float:
    return sum(sample.counts.run_s for sample in samples) / sum(sample.decoded for sample in samples)


def _total(counters: Iterable[Counter[int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for counter in counters:
        total.update(counter)
    return total
