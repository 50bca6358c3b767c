"""Has anything become slower than the kept ratios say?

    python -m benchmarks.check              # or make bench-check; about two minutes on a quiet machine
    python -m benchmarks.check --store      # keep this run's ratios beside those that are kept; five are needed
    python -m benchmarks.check --smoke      # does every part work? its numbers mean nothing

Everything is a ratio within one process, with our own plain decoding below it, so that a slower day of the machine does
not count. How far apart runs of the same code lie is known from those that are kept. A figure is slower if it is worse
than one such run in a hundred, by a tenth at least, and again at a second look. Exit code 1 if something is slower, 2
if nothing could be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.check.compare import (
    LEAST_RUNS,
    better,
    findings,
    findings_table,
    other_conditions,
    rounds_table,
    stored_lines,
    stored_medians,
    too_few,
)
from benchmarks.check.measure import CONTEXT, PARTS, SMOKE, Ratios, Size, measure
from benchmarks.machine import run_provenance
from benchmarks.output import write_lines
from benchmarks.page import Json, read_results
from benchmarks.session import note
from benchmarks.worker import ROOT
from offramp.bench.report.notices import QUIET_LOAD
from offramp.engine.cost_table import CostTable
from offramp.llm.costs import load_costs
from offramp.llm.loading import LoadedModel, load_model

RESULTS = ROOT / "benchmarks" / "results" / "check.jsonl"
SLOWER, NOTHING_COMPARED = 1, 2
KEEP = f"keep ratios of this machine on a commit that is fast enough, {LEAST_RUNS} times: make bench-check ARGS=--store"


def main() -> None:
    raise SystemExit(check(_arguments()))


def check(args: argparse.Namespace) -> int:
    """Measure, and compare or keep; returns the exit code."""
    facts = run_provenance(ROOT, "benchmarks.check") | {
        name: getattr(args, name) for name in ("model", "weights", "threads")
    }
    kept = [] if args.smoke else comparable(args.stored, facts, to_add=args.store)
    stored, few = stored_medians(kept), too_few(kept)
    if not (args.store or args.smoke or stored):
        give_up(f"error: {args.stored} holds fewer than {LEAST_RUNS} runs\nhint: {KEEP}")
    if few and not args.store:
        note(f"not compared, of fewer than {LEAST_RUNS} stored runs: {', '.join(few)}")
    warn(facts)
    loaded = load_model(args.model, weights=args.weights, threads=args.threads, max_context=CONTEXT)
    table = fresh_costs(loaded)
    size = SMOKE if args.smoke else Size(rounds=args.rounds)
    by_part = measure(loaded, table, size, list(PARTS))
    rounds = joined(by_part)
    if args.smoke:
        print(rounds_table(rounds))
        return 0
    if args.store:
        lines = (json.dumps(line) + "\n" for line in kept)
        write_lines(args.stored, stored_lines(rounds), facts, kept=lines)
        note(f"added a run to {args.stored}")
        return 0
    slow = slower_parts(stored, by_part)
    if slow:
        note(f"slower at first sight, measured again: {', '.join(slow)}")
        rounds = better(rounds, joined(measure(loaded, table, size, slow)))
    return report(stored, rounds, few)


def fresh_costs(loaded: LoadedModel) -> CostTable:
    """What steps take now: costs that are kept may be those of a busy moment, and decide what is drafted."""
    with TemporaryDirectory() as folder:
        table = load_costs(loaded, Path(folder)).table
    assert table is not None, "measured"
    return table


def joined(by_part: Mapping[str, Ratios]) -> Ratios:
    """The ratios of all parts."""
    return {name: ratios for part in by_part.values() for name, ratios in part.items()}


def comparable(path: Path, facts: Mapping[str, object], *, to_add: bool) -> list[Json]:
    """The kept lines. Ends the program where some are of another machine or model; and unless `to_add`, without any."""
    lines = read_results(path) if path.exists() else []
    if not lines and not to_add:
        give_up(
            f"error: {path} {'is empty' if path.exists() else 'does not exist'}: nothing to compare with\nhint: {KEEP}"
        )
    for line in lines:
        other = other_conditions(line["provenance"], facts)
        if other:
            hint = "remove them, or name another file by --stored" if to_add else KEEP
            give_up(f"error: kept ratios are of another machine or model: {'; '.join(other)}\nhint: {hint}")
    return lines


def give_up(message: str) -> None:
    """End the program before it measures anything."""
    print(message, file=sys.stderr)
    raise SystemExit(NOTHING_COMPARED)


def warn(facts: Json) -> None:
    """Ratios of sides in turns bear a slow machine, but not one whose neighbours come and go."""
    if facts["load_at_start"][0] > QUIET_LOAD:
        note(f"the machine is not quiet (load {facts['load_at_start'][0]}): expect noise")


def slower_parts(stored: Mapping[str, list[float]], by_part: Mapping[str, Ratios]) -> list[str]:
    """Parts with a figure that is slower than it was."""
    return [part for part, ratios in by_part.items() if any(found.slower for found in findings(stored, ratios))]


def report(stored: Mapping[str, list[float]], rounds: Mapping[str, list[float]], few: Collection[str]) -> int:
    """Tell what was found, but nothing of figures of too few stored runs; returns the exit code."""
    found = findings(stored, rounds)
    print(findings_table(found))
    for name in rounds.keys() - stored.keys() - set(few):
        print(f"nothing stored: {name}")
    for each in found:
        if each.slower:
            print(each.sentence)
    slow = any(each.slower for each in found)
    if not slow:
        print(f"nothing is slower ({len(found)} figures)")
    return SLOWER if slow else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--stored", type=Path, default=RESULTS, help="the kept ratios, one JSON line each")
    parser.add_argument("--store", action="store_true", help="add this run's ratios to --stored; compare nothing")
    parser.add_argument("--smoke", action="store_true", help="a few tokens, one round; compares and keeps nothing")
    args = parser.parse_args()
    if min(args.rounds, args.threads) < 1:
        parser.error("--rounds and --threads take numbers above 0")
    if args.smoke and args.store:
        parser.error("a smoke run is no measurement: it keeps nothing")
    return args


if __name__ == "__main__":
    main()
