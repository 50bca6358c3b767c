"""A file of results as a run leaves it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from offramp.bench.results.lines import FailureLine, Line
from tests.bench.results.made import item_line, run_line, turn_line

ITEMS = (("a-1", "a"), ("a-2", "a"), ("b-2", "b"), ("b-3", "b"))


def write_run(path: Path, *, gain: float = 2.0) -> Path:
    """Two rounds of plain decoding and `ngram`, which takes a `gain`-th of the time; one prompt failed."""
    first = replace(run_line("plain", "ngram", rounds=2), model="toy<model>")
    lines: list[Line] = [first]
    for number in range(2):
        for method, faster in (("plain", 1.0), ("ngram", gain)):
            for name, task in ITEMS:
                steps = [(10.0, 1)] + [(10.0 + 4 * (place + 1) / faster, 1) for place in range(7)]
                answer = item_line(method, number, name, steps, task=task)
                lines.append(replace(answer, text="hello", pieces=("hel", *[""] * 6, "lo")) if number == 0 else answer)
            if method == "ngram":
                failed = FailureLine(
                    workload="w", method=method, item="b-1", streams=1, round=number, reason="too long"
                )
                lines.append(failed)
            lines.append(turn_line(method, number, 0.15, 32))
    path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines), encoding="utf-8")
    return path
