"""Where benchmarks write their results and pages, and the options that say so."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.session import Json


def add_output_options(parser: argparse.ArgumentParser, results: Path, page: Path) -> None:
    """--output, --page, --write-page and --table."""
    parser.add_argument("--output", type=Path, default=results, help="results, one JSON line each")
    parser.add_argument("--page", type=Path, default=page)
    parser.add_argument("--write-page", action="store_true", help="write --page after measuring")
    parser.add_argument("--table", action="store_true", help="write --page from --output, without measuring")


def check_smoke(parser: argparse.ArgumentParser, args: argparse.Namespace, page: Path) -> None:
    """End the program where a smoke run would write the page that is kept; its results go beside those that are."""
    if not args.smoke:
        return
    if (args.write_page or args.table) and args.page == page:
        parser.error("a smoke run is no measurement: it writes no page but to another --page")
    if args.output == parser.get_default("output"):
        args.output = args.output.with_stem(f"{args.output.stem}-smoke")


def write_lines(output: Path, results: Iterable[Json], facts: Mapping[str, object], kept: Iterable[str] = ()) -> None:
    """A line a result as it comes, with the facts of the run, to the file and to standard output.

    The file is replaced, but for the lines that are `kept`, which come first.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as file:
        file.writelines(kept)
        for result in results:
            line = json.dumps(result | {"provenance": facts})
            for out in (file, sys.stdout):
                print(line, file=out, flush=True)
