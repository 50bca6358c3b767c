"""Measure early exits against our own full depth.

    OFFRAMP_DATA=folder python -m benchmarks.early_exit --write-page        # all of it
    OFFRAMP_DATA=folder python -m benchmarks.early_exit --parts parser --rounds 3
    OFFRAMP_DATA=folder python -m benchmarks.early_exit --smoke             # does every part work?
    python -m benchmarks.early_exit --table                                 # docs/early-exit.md from the results

--parser is a directory from `offramp train layerskip` on SNIPS; without it the one whose adapter is kept beside this
program is put together, once (that takes torch). One JSON line a result, with provenance, goes to standard output and
to --output, where lines of an earlier run about a model that this run does not measure stay.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.arguments import comma_separated
from benchmarks.early_exit.cells import PARTS as PARSER_PARTS
from benchmarks.early_exit.confirm import Confirmation
from benchmarks.early_exit.contestant import FULL
from benchmarks.early_exit.data import SNIPS, data_file, encode_pairs, general_prompts, parser_pairs
from benchmarks.early_exit.default import default_lines, default_policies
from benchmarks.early_exit.kept import kept_parser
from benchmarks.early_exit.ladder import ladder_lines
from benchmarks.early_exit.page import write_page
from benchmarks.early_exit.search import Choice, Search
from benchmarks.early_exit.study import Study, agreement_line, cost_line, study
from benchmarks.early_exit.targets import target_lines
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.session import Json, note
from benchmarks.speculation.prompts import HUMANEVAL, SPEC_BENCH
from benchmarks.worker import ROOT
from offramp.errors import OfframpError
from offramp.llm.loading import LoadedModel, load_model, with_exits
from offramp.model.shipped import shipped_packs

RESULTS = ROOT / "benchmarks" / "results" / "early_exit.jsonl"
PAGE = ROOT / "docs" / "early-exit.md"
DEFAULT = "default"
PARTS = (*PARSER_PARTS, DEFAULT)
DATA_FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PARSER_PARTS, (SNIPS,)),
    DEFAULT: (SPEC_BENCH, HUMANEVAL),
}
FOLDERS = re.compile(r"(--(?:parser|parser-pack|pack))[ =]\S+")
"""Of the machine that a run happened on; nobody else has them."""
MOST_ANSWER = 160
"""Tokens of a parser's answer; beyond that it has lost its way."""
PARSER_CONTEXT, GENERAL_CONTEXT = 1024, 2048


def main() -> None:
    args = _arguments()
    if not args.table:
        try:
            measure(args)
        except OfframpError as error:
            raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
    if args.table or args.write_page:
        write_page(args.output, args.page)
        note(f"wrote {args.page}")


def measure(args: argparse.Namespace) -> None:
    """Run the chosen parts and write their results."""
    for part in args.parts:
        for name in DATA_FILES[part]:
            data_file(name)
    names = ("weights", "threads", "examples", "timed", "tried", "prompts_per_task", "new_tokens", "rounds", "parts")
    facts = run_provenance(ROOT, "benchmarks.early_exit") | {name: getattr(args, name) for name in names}
    facts["command"] = FOLDERS.sub(r"\1 DIR", str(facts["command"]))
    write_lines(args.output, results(args), facts, kept_lines(args.output, args.parts))


def kept_lines(output: Path, parts: Sequence[str]) -> list[str]:
    """Lines of an earlier run, if there was one, about the model that none of these parts measures."""
    lines = output.read_text(encoding="utf-8").splitlines(keepends=True) if output.exists() else []
    measured = {part == DEFAULT for part in parts}
    return [line for line in lines if line.endswith("\n") and _of_default(json.loads(line)) not in measured]


def results(args: argparse.Namespace) -> Iterator[Json]:
    """Part by part: the parser's, the targets, the default model."""
    told: list[Json] = []
    chosen = [part for part in PARSER_PARTS if part in args.parts]
    parser = args.parser
    if chosen and parser is None:
        try:
            parser = kept_parser(args.model)
        except OfframpError as error:
            yield {"result": "missing", "part": ", ".join(chosen), "reason": error.message}
    if chosen and parser is not None:
        pack = args.parser_pack or Path(parser) / "exits"
        for line in parser_results(_load(args, parser, pack, PARSER_CONTEXT), chosen, args):
            told.append(line)
            yield line
    yield from target_lines(told)
    if DEFAULT in args.parts:
        if args.pack is None:
            yield {"result": "missing", "part": DEFAULT, "reason": f"no pack for {args.model} is shipped or given"}
        else:
            yield from default_results(_load(args, args.model, args.pack, GENERAL_CONTEXT), args)


def parser_results(loaded: LoadedModel, parts: Sequence[str], args: argparse.Namespace) -> Iterator[Json]:
    """Choose on pairs that were trained on, confirm on those that were not."""
    assert loaded.exits is not None
    pairs = parser_pairs(data_file(SNIPS), loaded.exits.pack.config.provenance, args.examples)
    tuning, reporting = (encode_pairs(some, loaded) for some in pairs)
    longest = max(len(loaded.tokenizer.encode(reference)) for each in tuning for reference in each.references)
    new_tokens = min(MOST_ANSWER, longest + 8) if not args.smoke else args.new_tokens
    known = study("parser", loaded, tuning, new_tokens)
    yield from (agreement_line(known), cost_line(known))
    search = Search(known, timed=args.timed, most=args.tried)
    confirmation = Confirmation(study=known, prompts=reporting, timed=args.timed, rounds=args.rounds)
    choices: list[Choice] = []
    for part in parts:
        own = [search.choose(cell) for cell in PARSER_PARTS[part]]
        yield from search.lines
        search.lines.clear()
        yield from confirmation.lines(own)
        choices += own
    best = next((choice for choice in choices if choice.cell.fill == "propagate"), choices[0])
    assert best.setting != FULL
    assert best.setting.policy is not None
    yield from ladder_lines(known, best.setting.policy, timed=args.timed)


def default_results(loaded: LoadedModel, args: argparse.Namespace) -> Iterator[Json]:
    """Choose on every other prompt, measure on the rest."""
    prompts = general_prompts(loaded, 2 * args.prompts_per_task)
    half = len(prompts) // 2
    known: Study = study(DEFAULT, loaded, prompts[:half], args.new_tokens)
    yield from (agreement_line(known), cost_line(known))
    named = default_policies(known)
    if not named:
        yield {"result": "missing", "part": DEFAULT, "reason": "no exit agrees often enough for these risks"}
        return
    yield from default_lines(known, prompts[half:], named, timed=args.timed, rounds=args.rounds)
    yield from ladder_lines(known, named[0].policy, timed=args.timed)


def _of_default(line: Json) -> bool:
    """It tells of the default model, not of the parser."""
    return DEFAULT in (line["result"], line.get("model"), line.get("part"))


def _load(args: argparse.Namespace, model: str | Path, pack: str | Path, context: int) -> LoadedModel:
    note(f"{model}")
    loaded = load_model(model, weights=args.weights, threads=args.threads, max_context=context)
    return with_exits(loaded, pack)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parser", help="model directory from `offramp train layerskip` on SNIPS (default: the kept one)"
    )
    parser.add_argument("--parser-pack", type=Path, help="its exit pack (default: exits in the directory)")
    parser.add_argument("--model", default="smollm2-135m", help="for general prompts")
    parser.add_argument("--pack", help="the exit pack of --model (default: the shipped one)")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="the same for all (default: 2)")
    parser.add_argument("--parts", type=comma_separated, default=list(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument(
        "--examples", type=int, default=512, help="pairs to choose on and to report on, at most (default: 512)"
    )
    parser.add_argument("--timed", type=int, default=64, help="prompts timed in a round, at most (default: 64)")
    parser.add_argument("--tried", type=int, default=8, help="settings run for each cell (default: 8)")
    parser.add_argument("--prompts-per-task", type=int, default=4, help="in each half, general prompts (default: 4)")
    parser.add_argument("--new-tokens", type=int, default=96, help="for general prompts, at most (default: 96)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--smoke", action="store_true", help="a few prompts, one round; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    if args.pack is None and args.model in shipped_packs("exits"):
        args.pack = args.model
    if args.smoke:
        args.examples, args.timed, args.tried, args.rounds = 3, 2, 1, 1
        args.prompts_per_task, args.new_tokens = 1, 6
    if min(args.examples, args.timed, args.tried, args.rounds, args.prompts_per_task) < 1 or args.new_tokens < 2:
        parser.error("counts take numbers above 0, --new-tokens above 1")
    check_smoke(parser, args, PAGE)
    if not set(args.parts) <= set(PARTS):
        parser.error(f"--parts takes {', '.join(PARTS)}")
    return args


if __name__ == "__main__":
    main()
