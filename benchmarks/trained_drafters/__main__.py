"""Measure drafters with trained weights against our own plain decoding.

    OFFRAMP_DATA=folder python -m benchmarks.trained_drafters --write-page  # all of it
    OFFRAMP_DATA=folder python -m benchmarks.trained_drafters --parts general --rounds 3
    OFFRAMP_DATA=folder python -m benchmarks.trained_drafters --smoke       # does every part work?
    python -m benchmarks.trained_drafters --table                           # docs/trained-drafters.md from the results

--drafter is a pack from `offramp train drafter`, --parser a directory from `offramp train layerskip` on SNIPS; without
it the one whose adapter is kept is put together, once (that takes torch). One JSON line a result, with provenance, goes
to standard output and to --output (replaced when a run begins).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from benchmarks.arguments import comma_separated
from benchmarks.early_exit.kept import kept_parser
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.session import Json, note
from benchmarks.speculation.__main__ import cost_line, warm
from benchmarks.speculation.contestant import Method, cost_table
from benchmarks.speculation.prompts import TASKS, Prompt, read_prompts, spec_bench_folder
from benchmarks.speculation.summary import method_lines, stream_line
from benchmarks.speculation.turns import many_streams, one_stream
from benchmarks.trained_drafters.methods import EVERYTHING, GENERAL, PARSER
from benchmarks.trained_drafters.page import write_page
from benchmarks.trained_drafters.parser import parser_prompts
from benchmarks.trained_drafters.targets import target_lines
from benchmarks.trained_drafters.training import training_facts
from benchmarks.worker import ROOT
from offramp.draft.pack import DrafterPack
from offramp.engine.cost_table import CostTable
from offramp.errors import OfframpError
from offramp.llm.drafter_pack import with_drafter
from offramp.llm.loading import LoadedModel, load_model, with_exits

RESULTS = ROOT / "benchmarks" / "results" / "trained_drafters.jsonl"
PAGE = ROOT / "docs" / "trained-drafters.md"
PARTS = ("general", "streams", "parser")


def main() -> None:
    args = _arguments()
    if not args.table:
        try:
            measure(args, spec_bench_folder())
        except OfframpError as error:
            raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
    if args.table or args.write_page:
        write_page(args.output, args.page)
        note(f"wrote {args.page}")


def measure(args: argparse.Namespace, data: Path) -> None:
    """Run the chosen parts and write their results."""
    names = ("model", "weights", "threads", "new_tokens", "prompts_per_task", "rounds", "parts")
    facts = run_provenance(ROOT, "benchmarks.trained_drafters") | {name: getattr(args, name) for name in names}
    write_lines(args.output, results(args, data), facts)


def results(args: argparse.Namespace, data: Path) -> Iterator[Json]:
    """Part by part: general prompts, several streams, the parser; then the targets."""
    told: list[Json] = []
    for line in chain(_general(args, data), _parser(args)):
        told.append(line)
        yield line
    yield from target_lines(told)


def _general(args: argparse.Namespace, data: Path) -> Iterator[Json]:
    if not {"general", "streams"} & set(args.parts):
        return
    note(args.model)
    loaded = load_model(args.model, weights=args.weights, threads=args.threads)
    loaded = with_exits(with_drafter(loaded, args.drafter), args.exits)
    prompts = read_prompts(data, loaded, args.prompts_per_task)
    table = cost_table(loaded)
    yield cost_line(table)
    assert loaded.drafter is not None
    yield training_line(loaded.drafter)
    if "general" in args.parts:
        yield from method_results(loaded, table, prompts, GENERAL, args)
    if "streams" in args.parts:
        mixed = [prompt for prompt in prompts if prompt.task in TASKS]
        bounds = {"new_tokens": args.new_tokens, "rounds": args.rounds}
        yield stream_line(many_streams(loaded, table, mixed, method=EVERYTHING, **bounds), EVERYTHING)


def _parser(args: argparse.Namespace) -> Iterator[Json]:
    if "parser" not in args.parts:
        return
    try:
        parser = Path(args.parser or kept_parser(args.model))
    except OfframpError as error:
        yield {"result": "missing", "what": "the parser", "reason": error.message}
        return
    note("the parser")
    loaded = with_exits(load_model(parser, weights=args.weights, threads=args.threads), parser / "exits")
    yield from method_results(loaded, cost_table(loaded), parser_prompts(loaded, args.pairs), PARSER, args)


def method_results(
    loaded: LoadedModel,
    table: CostTable,
    prompts: Sequence[Prompt],
    methods: Sequence[Method],
    args: argparse.Namespace,
) -> Iterator[Json]:
    """A line for each method and task."""
    warm(loaded, table)
    bounds = {"new_tokens": args.new_tokens, "rounds": args.rounds, "side_rounds": args.rounds}
    samples = one_stream(loaded, table, prompts, methods, **bounds)
    yield from method_lines(samples, [prompt.task for prompt in prompts])


def training_line(pack: DrafterPack) -> Json:
    """What the pack keeps of how it came to be."""
    about: Json = dict(pack.config.provenance)
    return {
        "result": "training",
        "batch_rows": about["recipe"]["batch_rows"],
        "curve": about["curve"],
        **training_facts(about),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument(
        "--drafter", default="smollm2-135m", help="a drafter pack of --model (default: the shipped one)"
    )
    parser.add_argument("--exits", help="an exit pack of --model, for auto to draft with (default: none)")
    parser.add_argument("--parser", help="model directory from `offramp train layerskip` (default: the kept one)")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="the same for all (default: 2)")
    parser.add_argument("--parts", type=comma_separated, default=list(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--prompts-per-task", type=int, default=10, help="default: 10")
    parser.add_argument("--pairs", type=int, default=30, help="of the parser (default: 30)")
    parser.add_argument("--new-tokens", type=int, default=128, help="at most (default: 128)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--smoke", action="store_true", help="a prompt a task, one round; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    if args.smoke:
        args.prompts_per_task, args.pairs, args.rounds, args.new_tokens = 1, 2, 1, 24
    if min(args.prompts_per_task, args.pairs, args.rounds, args.threads) < 1 or args.new_tokens < 2:
        parser.error("counts take numbers above 0, --new-tokens above 1")
    check_smoke(parser, args, PAGE)
    if not set(args.parts) <= set(PARTS):
        parser.error(f"--parts takes {', '.join(PARTS)}")
    return args


if __name__ == "__main__":
    main()
