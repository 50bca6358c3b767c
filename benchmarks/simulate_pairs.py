"""What a little model beside a big one would gain at sizes that nobody ran here: a SIMULATION, no measurement.

A round of the pair is the little model's passes, one a token that it writes, and one pass of the big one over all of
them and one row more; it brings the tokens that stand, and one of the big model's. Seconds are those of the cost model
(`offramp.engine.cost_table`), scaled from one measured model to others by their weights: what a row reads and what it
multiplies both grow with them. What attention takes, and all that does not grow with the weights, is left out; so are
differences between machines. How much stands comes from rates that are assumed, or from reports of real answers.

    python -m benchmarks.simulate_pairs                              # lines of JSON
    python -m benchmarks.simulate_pairs --table                      # the table in docs/big-little.md
    python -m benchmarks.simulate_pairs --outcomes reports.jsonl     # what a real pair's answers told

`reports.jsonl` has an `offramp` object of answers a line, or lines that hold one (a body of the server, `report` of
`offramp generate --json`): with drafts their counts by place, else what a little model wrote. What was written behind a
token that was replaced is not told, so that passes of the little model are counted a little too low there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arguments import comma_separated
from benchmarks.data import json_lines
from benchmarks.page import table as markdown
from offramp.engine.cost_table import CostTable, Curve

INPUTS = Path(__file__).with_suffix(".json")
SIZES = {"50M": 49.5e6, "135M": 134.5e6, "360M": 361.8e6, "1.7B": 1711.4e6, "8B": 7504.9e6}
"""Weights that a row reads: a student of six of the default model's layers, SmolLM2's three sizes, Llama 3.1 8B."""
PAIRS = ("50M/135M", "135M/1.7B", "360M/8B", "135M/8B")
RATES = (0.5, 0.6, 0.7, 0.8, 0.9)
WRITTEN = ("little_tokens", "fallbacks", "rollbacks")
"""Counts of a report; each token of the big model ends a round, by the one or the other."""
MOST_RUN = 16
"""Tokens that the little model writes in a row at most; more rows than that were not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What a round of a pair comes to, on the average."""

    stood: float  # tokens of the little model that stand
    written: float  # that it wrote
    passes: float  # that it took, those included after which it left the word to the big one

    def __post_init__(self) -> None:
        if not 0 <= self.stood <= self.written <= self.passes:
            raise ValueError(f"{self.stood} stand of {self.written} written in {self.passes} passes")


def rounds_at(rate: float, run: int) -> Rounds:
    """Runs of one length, each token standing with this chance if the one before it does."""
    if not 0 <= rate <= 1 or not 1 <= run <= MOST_RUN:
        raise ValueError(f"rate {rate} in [0, 1], runs of {run} tokens from 1 to {MOST_RUN}")
    return Rounds(stood=sum(rate**place for place in range(1, run + 1)), written=run, passes=run)


def rounds_of(reports: Iterable[Mapping[str, object]]) -> Rounds:
    """Of real answers, by their `offramp` objects."""
    stood = written = passes = count = 0
    for report in reports:
        drafted = report.get("num_draft_tokens_per_pos")
        accepted = report.get("num_accepted_tokens_per_pos")
        if isinstance(drafted, list) and isinstance(accepted, list) and drafted:
            count += drafted[0]
            stood, written, passes = stood + sum(accepted), written + sum(drafted), passes + sum(drafted)
        elif report.get("little") is not None:
            own, fallbacks, rollbacks = (_count(report, f"num_{what}") for what in WRITTEN)
            count += fallbacks + rollbacks
            stood, written, passes = stood + own, written + own + rollbacks, passes + own + rollbacks + fallbacks
    if count == 0:
        raise ValueError("no report tells of drafts, or of what a little model wrote")
    return Rounds(stood=stood / count, written=written / count, passes=passes / count)


def _count(report: Mapping[str, object], name: str) -> int:
    value = report.get(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}={value!r} is no count")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was measured of one model in one format, and where."""

    source: str
    bytes_per_second: float
    share_of_it: float  # that one row's pass reached
    bytes_per_weight: float
    rows: tuple[tuple[int, float], ...]  # rows of a call, and its time as a multiple of that of one row

    @staticmethod
    def read(path: Path = INPUTS) -> Machine:
        values = json.loads(path.read_text())
        return Machine(**{**values, "rows": tuple((rows, multiple) for rows, multiple in values["rows"])})

    def table(self, num_weights: float) -> CostTable:
        """The cost model of a model with so many weights."""
        one = num_weights * self.bytes_per_weight / (self.bytes_per_second * self.share_of_it)
        nothing = Curve(((1, 0.0),))
        scaled = Curve(tuple((rows, one * multiple) for rows, multiple in self.rows))
        return CostTable(num_layers=1, context=0, call=0.0, layers=scaled, per_token=nothing, head=nothing)

    def seconds(self, num_weights: float) -> Callable[[float], float]:
        """Of a call, by its rows; between two whole numbers in proportion."""
        table = self.table(num_weights)

        def of_rows(rows: float) -> float:
            low = int(rows)
            first, second = (table.seconds(each, 1, 0, 0) for each in (low, low + 1))
            return first + (rows - low) * (second - first)

        return of_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a pair would come to."""

    tokens_per_second: float
    big_alone: float  # tokens a second
    run: int | None = None  # the best one, where runs are simulated too

    @property
    def gain(self) -> float:
        return self.tokens_per_second / self.big_alone


def simulate(machine: Machine, little: float, big: float, rounds: Rounds) -> Simulated:
    """By the weights of both models."""
    reading, writing = machine.seconds(big), machine.seconds(little)
    seconds = rounds.passes * writing(1) + reading(rounds.written + 1)
    return Simulated(tokens_per_second=(rounds.stood + 1) / seconds, big_alone=1 / reading(1))


def at_rate(machine: Machine, little: float, big: float, rate: float) -> Simulated:
    """With the run that is best at this rate."""
    found = [
        (simulate(machine, little, big, rounds_at(rate, run)), run)
        for run in range(1, MOST_RUN)  # its rows and one more
    ]
    best, run = max(found, key=lambda each: each[0].tokens_per_second)
    return Simulated(tokens_per_second=best.tokens_per_second, big_alone=best.big_alone, run=run)


def weights_of(pair: str) -> tuple[float, float]:
    """The weights of "LITTLE/BIG"."""
    names = pair.split("/")
    if len(names) != 2 or not all(name in SIZES for name in names):
        raise ValueError(f"{pair!r} is no pair such as 135M/1.7B; sizes are {', '.join(SIZES)}")
    little, big = (SIZES[name] for name in names)
    return little, big


def table(machine: Machine, pairs: Sequence[str], rates: Sequence[float]) -> str:
    """For the docs."""
    rows = []
    for pair in pairs:
        found = [at_rate(machine, *weights_of(pair), rate) for rate in rates]
        gains = (f"{each.gain:.2f}x, runs of {each.run}" for each in found)
        rows.append((pair, f"{found[0].big_alone:.1f} tokens/s", *gains))
    return markdown(("simulated pair", "big alone", *(f"{rate:.0%} stand" for rate in rates)), rows)


def lines(machine: Machine, pairs: Sequence[str], rates: Sequence[float], outcomes: Rounds | None) -> Iterable[str]:
    """A line of JSON a pair and rate, each labelled as a simulation."""
    about = {"benchmark": "simulated_pair", "simulation": True, "machine": machine.source}
    for pair in pairs:
        little, big = weights_of(pair)
        if outcomes is None:
            found = [({"rate": rate}, at_rate(machine, little, big, rate)) for rate in rates]
        else:
            told = {"stood": outcomes.stood, "written": outcomes.written, "passes": outcomes.passes}
            found = [(told, simulate(machine, little, big, outcomes))]
        for given, each in found:
            result = {"tokens_per_second": each.tokens_per_second, "big_alone": each.big_alone, "gain": each.gain}
            yield json.dumps({**about, "pair": pair, **given, "run": each.run, **result})


def reports_in(path: Path) -> list[Mapping[str, object]]:
    """The `offramp` objects of a file, whatever holds them."""
    return [each.get("offramp") or each.get("report") or each for each in json_lines(path)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=comma_separated, default=list(PAIRS), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--rates", type=_rates, default=RATES, help="shares that stand, separated by commas")
    parser.add_argument("--outcomes", type=Path, help="reports of real answers, in place of rates")
    parser.add_argument("--inputs", type=Path, default=INPUTS, help="what was measured of a machine")
    parser.add_argument("--table", action="store_true", help="print a table instead of lines of JSON")
    options = parser.parse_args()
    try:
        machine = Machine.read(options.inputs)
        if options.table:
            print(table(machine, options.pairs, options.rates), end="")
            return
        outcomes = None if options.outcomes is None else rounds_of(reports_in(options.outcomes))
        for line in lines(machine, options.pairs, options.rates, outcomes):
            print(line)
    except (ValueError, OSError) as error:
        parser.error(str(error))


def _rates(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in comma_separated(text))


if __name__ == "__main__":
    main()
