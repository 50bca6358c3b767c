"""Measure answers under a grammar against plain decoding, and forced tokens against none.

    python -m benchmarks.structured --write-page            # all of it
    python -m benchmarks.structured --parts cost --streams 1 --rounds 7
    python -m benchmarks.structured --smoke                 # does every part work? its numbers mean nothing
    python -m benchmarks.structured --table                 # docs/structured.md from the results

One JSON line a result, with provenance, goes to standard output and to --output (replaced when a run begins).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks.arguments import comma_separated
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.session import Json, note
from benchmarks.speculation.contestant import cost_table
from benchmarks.structured.cases import DESCRIBE, FIXED, PLACES, REPORT, WIDE, groups, prompts
from benchmarks.structured.contestant import FORCED
from benchmarks.structured.page import write_page
from benchmarks.structured.summary import compile_lines, cost_line, forced_line
from benchmarks.structured.turns import compile_seconds, cost_turns, forced_turns
from benchmarks.worker import ROOT
from offramp.draft import AUTO
from offramp.engine.cost_table import CostTable
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.making import make_grammars

RESULTS = ROOT / "benchmarks" / "results" / "structured.jsonl"
PAGE = ROOT / "docs" / "structured.md"
COST, GAIN, COMPILE = "cost", "forced", "compile"
PARTS = (COST, GAIN, COMPILE)
CONTEXT = 1024


def main() -> None:
    args = _arguments()
    if not args.table:
        measure(args)
    if args.table or args.write_page:
        write_page(args.output, args.page)
        note(f"wrote {args.page}")


def measure(args: argparse.Namespace) -> None:
    """Run the chosen parts and write their results."""
    names = ("model", "weights", "threads", "streams", "tokens", "prompts", "rounds", "parts")
    facts = run_provenance(ROOT, "benchmarks.structured") | {name: getattr(args, name) for name in names}
    loaded = load_model(args.model, weights=args.weights, threads=args.threads, max_context=CONTEXT)
    table = cost_table(loaded)
    write_lines(args.output, results(loaded, table, args), facts)


def results(loaded: LoadedModel, table: CostTable, args: argparse.Namespace) -> Iterator[Json]:
    """Part by part."""
    grammars = make_grammars(loaded)
    bounds = {"tokens": args.tokens, "rounds": args.rounds}
    for streams in args.streams:
        if COST in args.parts:
            asked = groups(prompts(loaded, DESCRIBE, args.prompts), streams)
            for name, structure in WIDE.items():
                note(f"  {name}, {streams} streams")
                yield cost_line(name, streams, cost_turns(loaded, grammars.compile(structure), asked, **bounds))
        if GAIN in args.parts:
            note(f"  forced tokens, {streams} streams")
            asked = groups(prompts(loaded, REPORT, args.prompts), streams)
            samples = forced_turns(loaded, table, grammars.compile(FIXED), asked, **bounds)
            yield from (forced_line(side, streams, samples) for side in (FORCED, AUTO))
    if COMPILE in args.parts:
        yield from compile_lines(*compile_seconds(loaded, {**WIDE, "fixed schema": FIXED}, args.rounds))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--streams", type=_numbers, default=[1, 4], help="at once, separated by commas (default: 1,4)")
    parser.add_argument("--prompts", type=int, default=8, help=f"at most {len(PLACES)} (default: 8)")
    parser.add_argument("--tokens", type=int, default=160, help="of each answer, at most (default: 160)")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--parts", type=comma_separated, default=list(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--smoke", action="store_true", help="a few tokens, one round; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    if args.smoke:
        args.prompts, args.tokens, args.rounds = max(args.streams), 64, 1
    if not 0 < min(args.streams) <= max(args.streams) <= args.prompts <= len(PLACES):
        parser.error(f"--streams takes numbers up to --prompts, and that at most {len(PLACES)}")
    if min(args.rounds, args.threads) < 1 or args.tokens < 2:
        parser.error("--rounds and --threads take numbers above 0, --tokens above 1")
    check_smoke(parser, args, PAGE)
    if not set(args.parts) <= set(PARTS):
        parser.error(f"--parts takes {', '.join(PARTS)}")
    return args


def _numbers(text: str) -> list[int]:
    return [int(name) for name in comma_separated(text)]


if __name__ == "__main__":
    main()
