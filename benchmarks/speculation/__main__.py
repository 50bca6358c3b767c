"""Measure drafting against our own plain decoding, and beside peers' prompt lookup.

    OFFRAMP_DATA=folder python -m benchmarks.speculation --write-page       # all of it
    OFFRAMP_DATA=folder python -m benchmarks.speculation --parts one,streams --rounds 3
    OFFRAMP_DATA=folder python -m benchmarks.speculation --smoke            # does every part work?
    python -m benchmarks.speculation --table                                # docs/speculation.md from the results

One JSON line a result, with provenance, goes to standard output and to --output (replaced when a run begins).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.arguments import comma_separated
from benchmarks.environment import DEFAULT_ENVIRONMENTS
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.session import Json, note
from benchmarks.speculation.contestant import AUTO, METHODS, PLAIN, Contestant, cost_table, registered
from benchmarks.speculation.page import write_page
from benchmarks.speculation.peers import PEERS, Lookups
from benchmarks.speculation.prompts import TASKS, Prompt, read_prompts, spec_bench_folder
from benchmarks.speculation.summary import method_lines, stream_line
from benchmarks.speculation.targets import target_lines
from benchmarks.speculation.turns import Samples, check_off, many_streams, one_stream
from benchmarks.worker import ROOT
from offramp.engine.cost_table import CostTable
from offramp.llm.loading import LoadedModel, load_model

RESULTS = ROOT / "benchmarks" / "results" / "speculation.jsonl"
PAGE = ROOT / "docs" / "speculation.md"
PARTS = ("one", "streams", *(peer.peer for peer in PEERS))
CONTEXT = 256
ROW_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Of the costs shown."""


def main() -> None:
    args = _arguments()
    if not args.table:
        measure(args, spec_bench_folder())
    if args.table or args.write_page:
        write_page(args.output, args.page)
        note(f"wrote {args.page}")


def measure(args: argparse.Namespace, data: Path) -> None:
    """Run the chosen parts and write their results."""
    names = ("model", "weights", "threads", "new_tokens", "prompts_per_task", "rounds", "side_rounds")
    facts = run_provenance(ROOT, "benchmarks.speculation") | {name: getattr(args, name) for name in names}
    loaded = load_model(args.model, weights=args.weights, threads=args.threads)
    prompts = read_prompts(data, loaded, args.prompts_per_task)
    write_lines(args.output, results(loaded, prompts, args), facts)


def results(loaded: LoadedModel, prompts: Sequence[Prompt], args: argparse.Namespace) -> Iterator[Json]:
    """Part by part: our own, the targets, then peers."""
    table = cost_table(loaded)
    yield cost_line(table)
    own: Samples = {}
    told: list[Json] = []
    for line in own_results(loaded, table, prompts, args, own):
        told.append(line)
        yield line
    yield from target_lines(told)
    eos = sorted(loaded.eos_token_ids)
    lookups = Lookups(args.environments, threads=args.threads, eos=eos, most_tokens=args.new_tokens)
    for peer in PEERS:
        if peer.peer in args.parts:
            note(peer.worker)
            yield from lookups.lines(peer, prompts, own)


def own_results(
    loaded: LoadedModel, table: CostTable, prompts: Sequence[Prompt], args: argparse.Namespace, own: Samples
) -> Iterator[Json]:
    """One stream by every method that this version has, whose runs go to `own`, then several streams at once."""
    methods = registered()
    for method in METHODS:
        if method not in methods:
            yield {"result": "missing", "peer": "offramp", "weights": method.name, "reason": "no such drafter yet"}
    warm(loaded, table)
    if "one" in args.parts:
        bounds = {"new_tokens": args.new_tokens, "rounds": args.rounds, "side_rounds": args.side_rounds}
        own |= one_stream(loaded, table, prompts, methods, **bounds)
        yield {"result": "off", **check_off(own[PLAIN.name])}
        yield from method_lines(own, [prompt.task for prompt in prompts])
    if "streams" in args.parts and AUTO in methods:
        mixed = [prompt for prompt in prompts if prompt.task in TASKS]
        together = many_streams(loaded, table, mixed, new_tokens=args.new_tokens, rounds=args.rounds)
        yield stream_line(together)


def cost_line(table: CostTable) -> Json:
    """What the cost model says of steps with so many rows, before it learns from any."""
    costs = {count: table.seconds(count, table.num_layers, CONTEXT, count) for count in ROW_COUNTS}
    return {
        "result": "costs",
        "context": CONTEXT,
        "ms_by_rows": {count: round(1000 * value, 3) for count, value in costs.items()},
    }


def warm(loaded: LoadedModel, table: CostTable) -> None:
    """The first steps of a process fault pages in."""
    Contestant(loaded, table, PLAIN).run([[token % loaded.config.vocab_size for token in range(200)]], 8)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="the same for all (default: 2)")
    parser.add_argument("--prompts-per-task", type=int, default=10, help="default: 10")
    parser.add_argument("--new-tokens", type=int, default=128, help="at most (default: 128)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--side-rounds", type=int, default=1, help="of the methods besides off and auto (default: 1)")
    parser.add_argument("--parts", type=comma_separated, default=list(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--environments", type=Path, default=DEFAULT_ENVIRONMENTS, help="folder that setup_peers made")
    parser.add_argument("--smoke", action="store_true", help="a prompt a task, one round; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    if args.smoke:
        args.prompts_per_task, args.rounds, args.new_tokens = 1, 1, 24
    if min(args.prompts_per_task, args.rounds, args.threads) < 1 or args.new_tokens < 2 or args.side_rounds < 0:
        parser.error("--prompts-per-task, --rounds and --threads take numbers above 0, --new-tokens above 1")
    check_smoke(parser, args, PAGE)
    if not set(args.parts) <= set(PARTS):
        parser.error(f"--parts takes {', '.join(PARTS)}")
    args.environments = args.environments.expanduser().resolve()
    return args


if __name__ == "__main__":
    main()
