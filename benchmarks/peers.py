"""Compare offramp with other engines: same machine, same run, same prompts, same numbers of tokens, in turns.

    python -m benchmarks.peers                              # all of it, a quarter of an hour or more
    python -m benchmarks.peers --cases decode,rows --rounds 3
    python -m benchmarks.peers --smoke                      # one round of short cases: does every worker work?
    python -m benchmarks.peers --table                      # docs/performance.md from the results, without measuring

One JSON line a result, with provenance, goes to standard output and to --output (replaced when a run begins). Peers
that are not installed or fail are named there too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.arguments import comma_separated
from benchmarks.bandwidth import build_probe, read_bandwidth
from benchmarks.cases import CASES, OFFRAMP_Q8, Case
from benchmarks.environment import DEFAULT_ENVIRONMENTS
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.report import write_page
from benchmarks.session import Session, bandwidth_share, comparisons, note, row_scaling
from benchmarks.worker import ROOT

ROUNDS = 7
RESULTS = ROOT / "benchmarks" / "results" / "peers.jsonl"
PAGE = ROOT / "docs" / "performance.md"
SMOKE = {"prompt_len": 24, "new_tokens": 6, "repeats": 2}


def main() -> None:
    args = _arguments()
    if not args.table:
        measure(args)
    if args.table or args.write_page:
        write_page(args.output, args.page)
        note(f"wrote {args.page}")


def measure(args: argparse.Namespace) -> None:
    """Run the chosen cases and write their results."""
    facts = run_provenance(ROOT, "benchmarks.peers") | {"threads": args.threads}
    session = Session(args.environments, args.offramp_python, threads=args.threads)
    try:
        write_lines(args.output, results(session, groups(args), args), facts)
    finally:
        session.close()


def results(session: Session, cases: list[list[Case]], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Group by group, then who took part and who was missing."""
    for group in cases:
        note(", ".join(case.name for case in group))
        if group[0].kind == "rows":
            yield from _rows_group(session, group, args)
        else:
            samples = session.measure(group, args.rounds)
            for case in group:
                yield from comparisons(case, samples)
    for entrant, facts in session.facts.items():
        yield {"result": "peer", "peer": entrant.peer, "weights": entrant.weights, **facts}
    for entrant, reason in session.missing.items():
        yield {"result": "missing", "peer": entrant.peer, "weights": entrant.weights, "reason": reason}


def _rows_group(session: Session, group: list[Case], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of one call, with the memory's bandwidth read within each round."""
    probe = build_probe(args.environments)
    bandwidths: list[float] = []
    samples = session.measure(
        group, args.rounds, each_round=lambda: bandwidths.append(read_bandwidth(probe, args.threads))
    )
    for case in group:
        yield from comparisons(case, samples)
    if group[0].rows == 1:
        yield from row_scaling(group, samples)
        if len(samples.get((group[0].name, OFFRAMP_Q8), [])) == args.rounds:
            weight_bytes = session.facts[OFFRAMP_Q8]["weight_bytes"]
            yield bandwidth_share(group[0], samples, weight_bytes, bandwidths)


def groups(args: argparse.Namespace) -> list[list[Case]]:
    """The chosen cases; those of rows are measured together, so that they share each round."""
    chosen = [case for case in CASES if not args.cases or any(case.name.startswith(name) for name in args.cases)]
    if args.peers:
        chosen = [_only(case, args.peers) for case in chosen]
    if args.smoke:
        chosen = [_short(case) for case in chosen]
    rows = [case for case in chosen if case.kind == "rows"]
    alone = [[case] for case in chosen if case.kind != "rows"]
    return [*alone, rows] if rows else alone


def _only(case: Case, peers: Sequence[str]) -> Case:
    return replace(case, versus=tuple(pair for pair in case.versus if pair.theirs.peer in peers))


def _short(case: Case) -> Case:
    new_tokens = case.new_tokens if case.metric == "prefill" else SMOKE["new_tokens"]
    return replace(case, prompt_len=SMOKE["prompt_len"], new_tokens=new_tokens, repeats=SMOKE["repeats"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=DEFAULT_ENVIRONMENTS, help="folder that setup_peers made")
    parser.add_argument("--offramp-python", type=Path, default=Path(sys.executable), help="another build of offramp")
    parser.add_argument("--threads", type=int, default=2, help="the same for all (default: 2)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}; results need at least 5")
    parser.add_argument("--cases", type=comma_separated, default=[], help="beginnings of names: " + _case_names())
    parser.add_argument("--peers", type=comma_separated, default=[], help="only these, for example llama,vllm")
    parser.add_argument("--smoke", action="store_true", help="one round of short cases; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    if args.smoke:
        args.rounds = 1
    elif args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads take numbers above 0")
    check_smoke(parser, args, PAGE)
    unknown = [name for name in args.cases if not any(case.name.startswith(name) for case in CASES)]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {_case_names()}")
    known = {pair.theirs.peer for case in CASES for pair in case.versus}
    if not set(args.peers) <= known:
        parser.error(f"--peers takes {', '.join(sorted(known))}")
    args.environments = args.environments.expanduser().resolve()
    args.offramp_python = args.offramp_python.absolute()  # not resolved: a link leads out of the environment
    return args


def _case_names() -> str:
    return ", ".join(case.name for case in CASES)


if __name__ == "__main__":
    main()
