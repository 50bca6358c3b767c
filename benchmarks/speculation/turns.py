"""Methods take turns on the same prompts, and every answer must equal that of plain decoding, id for id."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.session import note
from benchmarks.speculation.contestant import AUTO, PLAIN, STREAMS, Contestant, Method, Sample
from benchmarks.speculation.prompts import Prompt
from offramp.bench.run.rounds import order
from offramp.engine.cost_table import CostTable
from offramp.llm.loading import LoadedModel

Samples = dict[str, list[list[Sample]]]
"""Method name -> a list a round -> a sample a prompt (or one a group of streams)."""

OFF_SECONDS_A_STEP = 50e-6
"""Most that a step without drafts may spend on finding out that nobody wants one."""


class TokensDifferError(Exception):
    """A method's answer is not that of plain decoding: a bug, and no number is worth anything."""


def one_stream(
    loaded: LoadedModel,
    table: CostTable,
    prompts: Sequence[Prompt],
    methods: Sequence[Method],
    *,
    new_tokens: int,
    rounds: int,
    side_rounds: int,
    main: Sequence[Method] = (PLAIN, AUTO),
) -> Samples:
    """Each prompt by each method in turn; who begins rotates. Methods besides the main ones end after `side_rounds`.

    Contestants are new each round: what they keep of earlier outputs never has the answer to a prompt that comes.
    """
    samples: Samples = {method.name: [] for method in methods}
    for number in range(rounds):
        chosen = [method for method in methods if method in main or number < side_rounds]
        contestants = {method.name: Contestant(loaded, table, method) for method in chosen}
        told: Samples = {name: [[]] for name in contestants}
        for place, prompt in enumerate(prompts):
            for name in order(list(contestants), number + place):
                told[name][0].append(contestants[name].run([prompt.token_ids], new_tokens))
            _check_equal({name: runs[0][-1] for name, runs in told.items()}, prompt.name)
        for name, [runs] in told.items():
            samples[name].append(runs)
        note(f"  round {number + 1} of {rounds}, {len(chosen)} methods")
    return samples


def many_streams(
    loaded: LoadedModel,
    table: CostTable,
    prompts: Sequence[Prompt],
    *,
    new_tokens: int,
    rounds: int,
    method: Method = AUTO,
) -> Samples:
    """`STREAMS` prompts at once, other ones each round as far as there are, plain and the method in turn."""
    samples: Samples = {PLAIN.name: [], method.name: []}
    for number in range(rounds):
        group = [prompts[(number * STREAMS + stream) % len(prompts)].token_ids for stream in range(STREAMS)]
        contestants = {each.name: Contestant(loaded, table, each) for each in (PLAIN, method)}
        told: dict[str, Sample] = {}
        for name in order(list(contestants), number):
            told[name] = contestants[name].run(group, new_tokens)
        _check_equal(told, f"{STREAMS} streams")
        for name, sample in told.items():
            samples[name].append([sample])
        note(f"  {STREAMS} streams, round {number + 1} of {rounds}")
    return samples


def check_off(plain: Sequence[Sequence[Sample]]) -> dict[str, float | int]:
    """Counters of plain decoding. Raises unless nobody drafted and next to no time went into it (median run)."""
    counts = [sample.counts for runs in plain for sample in runs]
    stepped = [count for count in counts if count.steps]
    steps = sum(count.steps for count in stepped)
    drafts = sum(count.drafts + count.drafted.total() + count.accepted.total() for count in counts)
    seconds = median([count.draft_s / count.steps for count in stepped]) if stepped else 0.0
    assert drafts == 0, f"{drafts} drafts with drafting off"
    assert seconds < OFF_SECONDS_A_STEP, f"{1e6 * seconds:.1f} microseconds a step for drafts with drafting off"
    return {"steps": steps, "num_drafts": drafts, "draft_us_per_step": round(1e6 * seconds, 2)}


def _check_equal(samples: dict[str, Sample], what: str) -> None:
    expected = samples[PLAIN.name].token_ids
    for name, sample in samples.items():
        if sample.token_ids != expected:
            raise TokensDifferError(f"{what}: {name} wrote other tokens than plain decoding")
