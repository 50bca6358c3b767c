"""A run's file: what is appended is read back, an interrupted turn leaves nothing, another run's file is refused."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from offramp.bench.results.file import ResultFile, read_lines
from offramp.bench.results.lines import CostLine, Line, RunLine
from offramp.errors import InvalidRequestError, ResourceError
from tests.bench.results.made import PLACE, failure_line, item_line, run_line, score_line, turn_line

RUN = run_line("plain", "auto", rounds=2)
FIRST: list[Line] = [
    item_line("plain", 0, "one", [(1, 1)]),
    failure_line("plain", 0, "two"),
    turn_line("plain", 0, 1, 1),
]
SECOND: list[Line] = [item_line("auto", 0, "one", [(1, 1)]), turn_line("auto", 0, 1, 1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def written(path: Path, *lines: Line, run: RunLine = RUN) -> bytes:
    with ResultFile(path, run) as file:
        file.append(*lines)
    return path.read_bytes()


def test_what_is_appended_is_read_back(path: Path) -> None:
    cost = CostLine(rows=1, context=32, measured_ms=1.0, predicted_ms=2.0)
    lines = [cost, *FIRST, *SECOND, score_line("plain", "one", 0.5), failure_line("auto", 1, None)]
    with ResultFile(path, RUN) as file:
        assert file.done == set()
        file.append(*lines)
        assert file.done == {("w", "plain", 1, 0), ("w", "auto", 1, 0)}
        assert file.lines == [RUN, *lines]
    assert read_lines(path) == [RUN, *lines]
    assert all("kind" in json.loads(line) for line in path.read_text().splitlines())


def test_why_a_method_ran_at_full_depth_is_kept_and_older_files_know_nothing_of_it(path: Path) -> None:
    turn = replace(SECOND[-1], note="no policy is faster")  # type: ignore[type-var]
    text = written(path, *FIRST, *SECOND[:-1], turn)
    assert read_lines(path)[-1] == turn
    older = b"".join(_without_note(line) for line in text.splitlines())
    assert older.count(b"note") == 0 < text.count(b"note")
    path.write_bytes(older)
    assert read_lines(path) == [RUN, *FIRST, *SECOND]
    with ResultFile(path, RUN) as file:
        assert len(file.done) == 2


def _without_note(line: bytes) -> bytes:
    return json.dumps({name: value for name, value in json.loads(line).items() if name != "note"}).encode() + b"\n"


def test_going_on_keeps_what_is_there_and_may_add_rounds(path: Path) -> None:
    written(path, *FIRST)
    more = replace(RUN, rounds=5, provenance={**PLACE, "measured_at": "later", "load": [9.0]})
    with ResultFile(path, more) as file:
        assert file.lines == [replace(RUN, rounds=5), *FIRST]
        file.append(*SECOND)
    assert read_lines(path) == [replace(RUN, rounds=5), *FIRST, *SECOND]
    with ResultFile(path, RUN) as file:
        assert file.lines[0] == replace(RUN, rounds=5)


def test_opening_alone_changes_nothing(path: Path) -> None:
    before = written(path, *FIRST)
    with ResultFile(path, RUN):
        pass
    assert path.read_bytes() == before


def test_wherever_a_run_is_cut_off_it_goes_on_behind_its_last_whole_turn(path: Path) -> None:
    whole = written(path, *FIRST, *SECOND)
    run_end = whole.index(b"\n") + 1
    first_end = whole.index(b'"turn"') + whole[whole.index(b'"turn"') :].index(b"\n") + 1
    for end in (*range(0, len(whole), 37), run_end, first_end, first_end + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        kept = [*FIRST] if end >= first_end else []
        with ResultFile(path, RUN) as file:
            assert file.lines == ([RUN, *kept] if end >= run_end else [])
            file.append(*SECOND)
        assert read_lines(path) == [RUN, *kept, *SECOND], end


def test_lines_of_an_interrupted_turn_that_stayed_in_the_file_are_not_told(path: Path) -> None:
    whole = written(path, *FIRST).splitlines(keepends=True)
    path.write_bytes(b"".join([whole[0], whole[1], *whole]))
    assert read_lines(path) == [RUN, *FIRST]
    path.write_bytes(b"".join(whole[:-1]))
    assert read_lines(path) == [RUN]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: [lines[0], b"nonsense\n", *lines[1:]], "line 2: Expecting value"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2: "),
        (lambda lines: [lines[0], b"{}\n"], "line 2: {} has no kind"),
        (lambda lines: [lines[0], b'{"kind": ["run"]}\n'], "line 2: "),
        (lambda lines: [lines[0], b'{"kind":"turn"}\n'], "line 2: workload is missing"),
        (lambda lines: [*lines, lines[-1]], "line 5: its turn is there already"),
        (lambda lines: [lines[0], lines[1], lines[1]], "line 3: 'one' comes twice in a turn"),
        (lambda lines: [*lines, lines[-1].replace(b'"plain"', b'"fast"')], "line 5: the run has no method 'fast'"),
        (lambda lines: [*lines, lines[-1].replace(b'"w"', b'"v"')], "line 5: the run has no workload 'v'"),
        (
            lambda lines: [*lines, lines[0].replace(b'"hash"', b'"other"')],
            "another run begins: it has other source_hash",
        ),
        (lambda lines: lines[1:], "holds no results"),
        (lambda lines: [], "holds no results"),
        (lambda lines: [b"\xff\xfe\n"], "line 1: "),
    ],
)
def test_a_malformed_line_is_named(path: Path, spoil: Callable[[list[bytes]], list[bytes]], message: str) -> None:
    lines = written(path, *FIRST).splitlines(keepends=True)
    path.write_bytes(b"".join(spoil(lines)))
    with pytest.raises(InvalidRequestError) as caught:
        read_lines(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(RUN, source_hash="other"), "it has other source_hash"),
        (replace(RUN, max_tokens=9), "it has other max_tokens"),
        (replace(RUN, streams=(1, 4)), "it has other streams"),
        (run_line("plain", "ngram", rounds=2), "it has other methods, exactness"),
        (run_line("plain", "auto", rounds=2, workload="v"), "it has other workloads"),
        (replace(RUN, provenance={**PLACE, "cpu": "another"}), "cpu was 'a cpu' and is 'another'"),
        (replace(RUN, provenance={**PLACE, "offramp": "9"}), "offramp was '0.1.0' and is '9'"),
        (replace(RUN, provenance={**PLACE, "threads": 1}), "threads was 2 and is 1"),
    ],
)
def test_another_runs_file_is_refused_and_left_as_it_is(path: Path, other: RunLine, message: str) -> None:
    before = written(path, *FIRST) + b'{"kind":"item'
    path.write_bytes(before)
    with pytest.raises(InvalidRequestError) as caught:
        ResultFile(path, other)
    assert message in caught.value.message
    assert "another file" in caught.value.hint
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"my notes\n")
    with pytest.raises(InvalidRequestError, match="line 1"):
        ResultFile(path, RUN)
    assert path.read_bytes() == b"my notes\n"


def test_places_that_are_no_files(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "results.jsonl", Path("/dev/null")):
        with pytest.raises(InvalidRequestError):
            ResultFile(place, RUN)
    with pytest.raises(InvalidRequestError, match="can't read"):
        read_lines(tmp_path / "none.jsonl")


def test_two_runs_do_not_write_one_file(path: Path) -> None:
    with ResultFile(path, RUN), pytest.raises(ResourceError, match="by another run"):
        ResultFile(path, RUN)
    with ResultFile(path, RUN) as file:
        file.append(*FIRST)


def test_a_full_disk_loses_nothing(path: Path) -> None:
    before = written(path, *FIRST)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ResultFile(path, RUN) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 300, hard))
        try:
            with pytest.raises(ResourceError, match="can't write") as caught:
                file.append(*SECOND)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "same command" in caught.value.hint
        assert path.read_bytes() == before
        assert file.lines == [RUN, *FIRST]
        file.append(*SECOND)
    assert read_lines(path) == [RUN, *FIRST, *SECOND]


def test_no_handle_is_left(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    written(path, *FIRST)
    with pytest.raises(InvalidRequestError):
        ResultFile(path, replace(RUN, max_tokens=9))
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after == before


ITEM, TURN = item_line("plain", 0, "one", [(1, 1), (2, 1)]), turn_line("plain", 0, 1, 1)
DEEP: object = 0
for _ in range(300):
    DEEP = [DEEP]
IMPOSSIBLE: list[tuple[Line, str, object]] = [
    *((ITEM, "steps", value) for value in ([], [[1, 0]], [[1, -1]], [[-1, 1]], [[5, 1], [4, 1]], [[1, 3]])),
    (ITEM, "first_seconds", -0.5),
    (ITEM, "first_seconds", 10**400),
    (ITEM, "first_seconds", 1e308),
    (ITEM, "exit_layers", [10**400, 3]),
    (ITEM, "accepted", [-1]),
    (ITEM, "streams", 0),
    (ITEM, "round", -1),
    *((TURN, name, -1) for name in ("seconds", "decoded_tokens", "peak_bytes", "joules")),
    (TURN, "output_tokens", 10**400),
    (score_line("plain", "one", 0.5), "value", 10**400),
    (score_line("plain", "one", 0.5), "value", 1e308),
    (score_line("plain", "one", 0.5, "perplexity"), "value", 0.0),
    (CostLine(rows=1, context=32, measured_ms=1.0, predicted_ms=2.0), "context", 10**400),
    (RUN, "rounds", -1),
    (RUN, "streams", [0]),
    (RUN, "provenance", {"load": [10**400]}),
    (RUN, "provenance", {"cpu": DEEP}),
    (RUN, "workloads", {"w": {"tasks": DEEP}}),
]


@pytest.mark.parametrize(("line", "name", "value"), IMPOSSIBLE)
def test_a_line_with_an_impossible_value_is_named(path: Path, line: Line, name: str, value: object) -> None:
    lines = [asdict(RUN), *map(asdict, FIRST), asdict(line)] if line is not RUN else [asdict(RUN)]
    place = len(lines) - 1
    if line in (ITEM, TURN):
        lines, place = [asdict(RUN), asdict(line)], 1
    lines[place] = {**lines[place], name: value}
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(InvalidRequestError, match=rf"line {place + 1}: .*"):
        read_lines(path)
