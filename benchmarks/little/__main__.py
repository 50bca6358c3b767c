"""Measure a student beside its teacher: as a lossless draft model, and as the little model that writes.

    OFFRAMP_DATA=folder python -m benchmarks.little --student DIRECTORY --write-page
    OFFRAMP_DATA=folder python -m benchmarks.little --task parsing --student DIRECTORY --write-page
    OFFRAMP_DATA=folder python -m benchmarks.little --student DIRECTORY --smoke   # does every part work?
    python -m benchmarks.little --table                                           # docs/student.md from the results

DIRECTORY is from `offramp train drafter smollm2-135m --kind student`; for parsing, of the parser: a directory from
`offramp train layerskip` on SNIPS, by --model, or else the one whose adapter is kept (that takes torch). One JSON line
a result, with provenance, goes to standard output and to --output, where those of the other task stay.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import data_folder
from benchmarks.early_exit.kept import kept_parser
from benchmarks.little.asked import FILES, PARSING, SUMMARIES, Prompts, parsing, summaries
from benchmarks.little.page import write_page
from benchmarks.little.summary import MOST_LOST, result_lines, tried_lines
from benchmarks.little.turns import GRIDS, choose, take_turns, try_policies
from benchmarks.machine import run_provenance
from benchmarks.output import add_output_options, check_smoke, write_lines
from benchmarks.session import Json, note
from benchmarks.speculation.contestant import cost_table
from benchmarks.trained_drafters.training import training_facts
from benchmarks.worker import ROOT
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.errors import OfframpError
from offramp.exits.pack_file import read_pack
from offramp.llm.draft_model import with_draft_model
from offramp.llm.loading import LoadedModel, load_model

RESULTS = ROOT / "benchmarks" / "results" / "student.jsonl"
PAGE = ROOT / "docs" / "student.md"
ABOUT = Path("training") / "student.json"
DEFAULT = "smollm2-135m"
MARGIN = MOST_LOST / 2
"""Lost at most by the policy that is chosen, on the prompts that it is chosen by."""
FOLDERS = re.compile(r"(--(?:model|student))[ =]\S*/\S*")
"""Of the machine that a run happened on; nobody else has them."""


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
    """Run the task and write its results. Raises OfframpError for what can't be loaded."""
    folder = data_folder(FILES[args.task], holds=" and ".join(FILES[args.task]))
    names = ("task", "weights", "threads", "new_tokens", "tuning", "prompts", "rounds")
    facts = run_provenance(ROOT, "benchmarks.little") | {name: getattr(args, name) for name in names}
    facts["command"] = FOLDERS.sub(r"\1 DIR", str(facts["command"]))
    write_lines(args.output, results(args, folder), facts, kept_lines(args.output, args.task))


def kept_lines(output: Path, task: str) -> list[str]:
    """Those of an earlier run, if there was one, of the other task."""
    lines = output.read_text(encoding="utf-8").splitlines(keepends=True) if output.exists() else []
    return [line for line in lines if line.endswith("\n") and json.loads(line)["provenance"]["task"] != task]


def results(args: argparse.Namespace, folder: Path) -> Iterator[Json]:
    """The student, policies on the prompts that one is chosen by, then the others by all in turn."""
    model = args.model or (kept_parser(DEFAULT) if args.task == PARSING else DEFAULT)
    loaded = load_model(model, weights=args.weights, threads=args.threads)
    loaded = with_draft_model(loaded, args.student, threads=args.threads)
    table = cost_table(loaded)
    yield student_line(args.student / ABOUT, loaded.config.num_layers)
    prompts = task_prompts(args, model, folder, loaded)
    policies = [BigLittlePolicy(rollback=loss, fallback=least, max_run=most) for loss, least, most in GRIDS[args.task]]
    tried = try_policies(loaded, table, prompts.tuning, policies[: args.policies], args.new_tokens)
    chosen = choose(tried, MARGIN)
    yield from tried_lines(tried, chosen)
    policy = None if chosen is None else chosen.policy
    bounds = {"new_tokens": args.new_tokens, "rounds": args.rounds}
    yield from result_lines(prompts.reported, take_turns(loaded, table, prompts.reported, policy, **bounds), loaded)


def task_prompts(args: argparse.Namespace, model: str | Path, folder: Path, loaded: LoadedModel) -> Prompts:
    """The task's."""
    if args.task == SUMMARIES:
        return summaries(folder, loaded, args.tuning, args.prompts)
    provenance = read_pack(Path(model) / "exits").config.provenance
    return parsing(folder, provenance, loaded, args.tuning, args.prompts)


def student_line(path: Path, num_layers: int) -> Json:
    """What the student keeps of how it came to be."""
    about = json.loads(path.read_text(encoding="utf-8"))
    return {
        "result": "student",
        "layers": about["recipe"]["layers"],
        "num_layers": num_layers,
        **training_facts(about),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(FILES), default=SUMMARIES, help="default: summaries")
    parser.add_argument("--model", help="the teacher (default: smollm2-135m, of parsing the kept parser)")
    parser.add_argument("--student", type=Path, help="a directory from `offramp train drafter --kind student`")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--threads", type=int, default=2, help="the same for all (default: 2)")
    parser.add_argument("--tuning", type=int, help="prompts that a policy is chosen by (default: 12, of parsing 100)")
    parser.add_argument("--prompts", type=int, help="prompts that are reported (default: 40, of parsing 200)")
    parser.add_argument("--new-tokens", type=int, default=128, help="at most (default: 128)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--smoke", action="store_true", help="two prompts, one round; its numbers mean nothing")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args()
    args.policies = len(GRIDS[args.task])
    tuning, reported = (12, 40) if args.task == SUMMARIES else (100, 200)
    args.tuning = tuning if args.tuning is None else args.tuning
    args.prompts = reported if args.prompts is None else args.prompts
    if args.smoke:
        args.tuning, args.prompts, args.rounds, args.new_tokens, args.policies = 1, 2, 1, 24, 2
    if min(args.tuning, args.prompts, args.rounds, args.threads) < 1 or args.new_tokens < 2:
        parser.error("counts take numbers above 0, --new-tokens above 1")
    if args.student is None and not args.table:
        parser.error("--student is missing")
    check_smoke(parser, args, PAGE)
    return args


if __name__ == "__main__":
    main()
