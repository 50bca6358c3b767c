"""Where lines and pages of a run go, and what a run says of itself."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.machine import public_command
from benchmarks.output import add_output_options, check_smoke

RESULTS, PAGE = Path("results/some.jsonl"), Path("docs/some.md")


def settled(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    add_output_options(parser, RESULTS, PAGE)
    args = parser.parse_args(words)
    check_smoke(parser, args, PAGE)
    return args


def test_lines_of_a_smoke_run_lie_beside_those_that_are_kept() -> None:
    assert settled().output == RESULTS
    assert settled("--smoke").output == Path("results/some-smoke.jsonl")
    assert settled("--smoke", "--output", "mine.jsonl").output == Path("mine.jsonl")


@pytest.mark.parametrize("what", ["--write-page", "--table"])
def test_a_smoke_run_never_writes_the_page_that_is_kept(what: str) -> None:
    with pytest.raises(SystemExit):
        settled("--smoke", what)
    assert settled("--smoke", what, "--page", "mine.md").page == Path("mine.md")


def test_a_command_is_told_without_the_folders_of_its_machine() -> None:
    words = ["python", "-m", "benchmarks.some", "--environments", "/a/b", "--output=/a/c", "--rounds", "3"]
    assert public_command(words) == "python -m benchmarks.some --rounds 3"
