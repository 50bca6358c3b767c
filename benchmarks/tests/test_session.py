"""Workers, turns, results and the page, with a fake peer in place of the engines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import session as session_module
from benchmarks.cases import CASES, MODELS, Case, Versus
from benchmarks.environment import model_path
from benchmarks.report import render
from benchmarks.session import Session, comparisons, row_scaling
from benchmarks.worker import Entrant, Worker, WorkerError

FAST, SLOW, BROKEN, ABSENT = (Entrant("fake", "5"), Entrant("fake", "40"), Entrant("fake", "broken"), Entrant("x", "1"))
CASE = Case(
    name="toy",
    title="A toy",
    metric="decode",
    streams=2,
    prompt_len=8,
    new_tokens=6,
    versus=(Versus(FAST, SLOW, 2.0), Versus(FAST, BROKEN), Versus(FAST, ABSENT)),
)
FACTS = {
    "measured_at": "now",
    "commit": "0" * 40,
    "changed_files": [],
    "cpu": "a CPU",
    "cores": 2,
    "cpu_flags": ["avx2"],
    "memory_gib": 1,
    "threads": 2,
    "load_at_start": [0.1, 0.1, 0.1],
    "command": "c",
}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose workers are fakes, all run by this Python."""
    program = "import sys; sys.path.append({root!r}); import runpy; " + (
        "runpy.run_module('benchmarks.tests.fake_peer', run_name='__main__') # {module}"
    )
    monkeypatch.setattr("benchmarks.worker.START", program)
    python = tmp_path / "fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(session_module, "env_python", lambda folder, peer: folder / peer / "bin" / "python")
    monkeypatch.setattr(session_module, "MODELS", dict.fromkeys((FAST, SLOW, BROKEN, ABSENT), "Q4_1"))
    model_path(tmp_path, "Q4_1").parent.mkdir()
    model_path(tmp_path, "Q4_1").touch()
    opened = Session(tmp_path, Path(sys.executable), threads=1)
    yield opened
    opened.close()


def test_who_runs_is_compared_and_who_does_not_is_named(session: Session) -> None:
    samples = session.measure([CASE], 3)
    [result] = comparisons(CASE, samples)
    assert (result["ours"]["weights"], result["theirs"]["weights"]) == ("5", "40")
    assert result["rounds"] == len(result["ours"]["seconds"]) == 3
    assert result["ratio"]["median"] > 1.5  # 40 ms a token against 5, however late a busy machine wakes them
    assert result["equal_tokens"] == 1.0
    assert set(session.missing) == {BROKEN, ABSENT}
    assert "no such weights" in session.missing[BROKEN]
    assert "no environment" in session.missing[ABSENT]


def test_a_worker_that_dies_is_an_error(session: Session, tmp_path: Path) -> None:
    worker = Worker(FAST, Path(sys.executable), threads=1, log=tmp_path / "log")
    worker.load("m")
    os.killpg(worker._process.pid, 9)
    with pytest.raises(WorkerError):
        worker.run(CASE.request(0))
    worker.close()


def test_prompts_change_with_the_round_and_never_with_the_entrant() -> None:
    assert CASE.request(0) == CASE.request(0) != CASE.request(1)
    for case in CASES:
        request = case.request(0)
        for prompt in request.get("prompts", [request.get("prompt")]):
            assert len(prompt) == case.prompt_len


def test_every_entrant_has_a_model() -> None:
    assert {entrant for case in CASES for entrant in case.entrants} == set(MODELS)


def test_rows_are_told_as_multiples_of_one() -> None:
    cases = [case for case in CASES if case.kind == "rows"]
    samples = {
        (case.name, entrant): [{"seconds": [float(case.rows)]}] * 2 for case in cases for entrant in case.entrants
    }
    told = {(line["peer"], line["weights"], line["rows"]): line for line in row_scaling(cases, samples)}
    assert told["offramp", "q8", 8]["times_one_row"]["median"] == 8.0
    assert told["offramp", "q8", 8]["target"] == 2.2
    assert told["llama", "Q8_0", 8]["target"] is None


def test_the_page_names_misses_and_a_busy_machine() -> None:
    case = next(case for case in CASES if case.name == "decode-64")
    reply = {"first": 1.0, "total": 2.0, "decoded": 10, "tokens": [[1]]}
    slow = {"first": 1.0, "total": 2.1, "decoded": 10, "tokens": [[1]]}
    samples = {(case.name, case.versus[0].ours): [reply] * 5, (case.name, case.versus[0].theirs): [slow] * 5}
    lines = list(comparisons(case, samples))
    lines.append({"result": "missing", "peer": "vllm", "weights": "F32", "reason": "no environment: vllm"})
    page = render([json.loads(json.dumps(line | {"provenance": FACTS})) for line in lines])
    [row] = [line for line in page.splitlines() if line.startswith("| One stream")]
    assert "1.10 (1.10 to 1.10)" in row
    assert "| no |" in row
    assert "Missing: vLLM F32, no environment: vllm." in page
    assert "not quiet" not in page
    busy = FACTS | {"load_at_start": [4.0, 4.0, 4.0]}
    assert "not quiet" in render([lines[0] | {"provenance": busy}])
