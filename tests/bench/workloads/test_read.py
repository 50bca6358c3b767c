"""Lines of every form become prompts; bad ones are named, and the rest runs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from offramp.bench.quality import METRICS
from offramp.bench.workloads import CodeTest, Item, Workload, read_workload, shipped_workload
from offramp.bench.workloads.judging import NAMED, metric_of
from offramp.errors import InvalidRequestError


def read(path: Path, *lines: object, limit: int | None = None, raw: bool = False) -> Workload:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return read_workload(path, limit=limit, raw=raw)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.jsonl"


def test_a_user_s_own_lines(path: Path) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    found = read(
        path,
        {"prompt": "p", "reference": "a reference of more than five words", "task": "t", "id": 7},
        "\n",
        {"messages": messages},
        {"prompt": "q", "references": ["18", "19"], "task": "n"},
        {"prompt": "r", "reference": 18, "task": "n", "metric": "contains"},
    )
    assert found.items == (
        Item(
            name="7", task="t", content="p", references=("a reference of more than five words",), metrics=("rouge_l",)
        ),
        Item(name="line 3", task="mine", content=messages),
        Item(name="line 4", task="n", content="q", references=("18", "19"), metrics=("final_number",)),
        Item(name="line 5", task="n", content="r", references=("18",), metrics=("contains",)),
    )
    assert (found.name, found.refused, found.unscored) == ("mine", (), ())
    assert found.metrics == ("rouge_l", "final_number", "contains")
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_workload(path, name="other").items[1].task == "other"
    assert read_workload(path, name="all").items[1].task == "prompts"


def test_spec_bench_as_published(path: Path) -> None:
    found = read(
        path,
        {"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["first answer", "second"]},
        {"question_id": 161, "category": "translation", "turns": ["Translate"], "reference": ["Paris", "Parys"]},
    )
    assert found.items == (
        Item(name="81", task="multi_turn", content="one", references=("first answer",), metrics=("contains",)),
        Item(name="161", task="translation", content="Translate", references=("Paris", "Parys"), metrics=("contains",)),
    )


@pytest.mark.parametrize("names", [("task_id", "canonical_solution"), ("id", "reference")])
def test_human_eval_is_continued_and_tested(path: Path, names: tuple[str, str]) -> None:
    line = {"prompt": "def f():\n", "test": "def check(c): pass", "entry_point": "f"}
    [item] = read(path, {**line, names[0]: "HumanEval/0", names[1]: "    return 1\n"}).items
    assert item == Item(
        name="HumanEval/0",
        task="code",
        content="def f():\n",
        references=("    return 1\n",),
        code=CodeTest(before="def f():\n", after="def check(c): pass", entry_point="f"),
        metrics=("pass_at_1",),
        raw=True,
    )


def test_gsm8k_and_parses(path: Path) -> None:
    found = read(
        path,
        {"question": "How many?", "answer": "2 + 1 = 3\n#### 3"},
        {"utterance": "play a song", "semantic_parse": "[IN:PLAY [SL:WHAT song ] ]"},
    )
    assert [(item.content, item.task, item.metrics) for item in found.items] == [
        ("How many?", "math_reasoning", ("final_number",)),
        ("play a song", "semantic_parsing", ("exact_match",)),
    ]


@pytest.mark.parametrize(
    ("references", "metric"),
    [
        (["18", "-3.5", "$1,200"], "final_number"),
        (["two and\none\n#### 3"], "final_number"),
        (["18", "eighteen"], "contains"),
        (["[IN:A [SL:B c ] ]", "[IN:C ]"], "exact_match"),
        (["[IN:A ]", "a"], "contains"),
        (["one two three four five"], "contains"),
        (["short", "one two three four five six"], "rouge_l"),
    ],
)
def test_the_metric_of_a_task_fits_all_its_references(references: list[str], metric: str) -> None:
    assert metric_of(references) == metric
    assert metric_of(references[::-1]) == metric
    assert {metric, *NAMED} <= set(METRICS)


BAD = {
    "no JSON": ("{oops\n", "is not JSON"),
    "no object": ([1], "is not an object"),
    "nothing": ({}, "has neither a text as prompt nor a list of messages"),
    "both": ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "has neither"),
    "empty": ({"prompt": ""}, "has neither"),
    "half a character": ('{"prompt": "\\ud83d"}\n', "half of a character"),
    "message": ({"messages": ["hi"]}, "no object with a role"),
    "role": ({"messages": [{"role": "wizard", "content": "hi"}]}, "'wizard' is impossible"),
    "turns": ({"turns": []}, "no list of texts"),
    "turn": ({"turns": ["a", 1]}, "no list of texts"),
    "question": ({"question": 3, "answer": "4"}, "'question' that is no text"),
    "utterance": ({"utterance": "", "semantic_parse": "[IN:A ]"}, "'utterance' that is no text"),
    "test": ({"prompt": "a", "test": 1, "entry_point": "f"}, "'test' that is no text"),
    "entry point": ({"prompt": "a", "test": "b", "entry_point": "f()"}, "no name of Python"),
    "reference": ({"prompt": "a", "reference": {"x": 1}}, "'reference' that is neither"),
    "references": ({"prompt": "a", "references": ["a", True]}, "'references' that is neither"),
    "metric": ({"prompt": "a", "reference": "b", "metric": "bleu"}, "none of rouge_l, contains"),
    "code's metric": ({"prompt": "a", "reference": "b", "metric": "pass_at_1"}, "none of rouge_l, contains"),
    "no number": ({"prompt": "a", "reference": "b", "metric": "final_number"}, "without a number"),
    "task": ({"prompt": "a", "task": "all"}, "stands for all tasks"),
    "no task": ({"prompt": "a", "task": ""}, "'task' that is no name"),
    "long task": ({"prompt": "a", "task": "t" * 201}, "'task' that is no name"),
    "id": ({"prompt": "a", "id": "\x1b[2J"}, "'id' that is no name"),
    "listed id": ({"prompt": "a", "id": ["x"]}, "'id' that is no name"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_named_and_the_rest_runs(path: Path, case: str) -> None:
    line, reason = BAD[case]
    found = read(path, {"prompt": "good"}, line, {"prompt": "last"})
    assert [item.content for item in found.items] == ["good", "last"]
    [refused] = found.refused
    assert refused.where == f"{path}, line 2"
    assert reason in refused.reason


def test_a_file_without_a_usable_line_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"mine\.jsonl holds no prompt that can be run(?!:)"):
        read(path, "\n")
    with pytest.raises(InvalidRequestError, match=r"holds no prompt.*: .*line 1 is not JSON"):
        read(path, "{\n", "[]\n")
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidRequestError, match="can't read"):
            read_workload(place)


@pytest.mark.parametrize("limit", [0, -1, True, "3"])
def test_a_limit_is_a_number_of_prompts(path: Path, limit: int) -> None:
    with pytest.raises(InvalidRequestError, match="limit="):
        read(path, {"prompt": "a"}, limit=limit)


def test_the_same_id_twice_makes_two_names(path: Path) -> None:
    lines = [{"prompt": "a", "id": name} for name in ("x", "x", "line 4", None, "x")]
    names = [item.name for item in read(path, *lines).items]
    assert names == ["x", "x (line 2)", "line 4", "line 4 (line 4)", "x (line 5)"]


def test_a_limit_takes_tasks_in_turn(path: Path) -> None:
    lines = [{"prompt": str(number), "task": task} for number, task in enumerate("aaaabbc")]
    found = {
        limit: "".join(str(item.content) for item in read(path, *lines, limit=limit).items) for limit in (1, 4, 6, 99)
    }
    assert found == {1: "0", 4: "0146", 6: "012456", 99: "0123456"}


def test_a_limit_changes_no_metric(path: Path) -> None:
    lines = [{"prompt": "a", "reference": "yes"}, {"prompt": "b", "reference": "a reference of more than five words"}]
    assert read(path, *lines, limit=1).metrics == read(path, *lines).metrics == ("rouge_l",)


def test_a_missing_reference_is_told(path: Path) -> None:
    found = read(
        path,
        {"prompt": "a", "id": "has", "task": "t", "reference": "x"},
        {"prompt": "b", "id": "blank", "task": "t", "reference": " "},
        {"prompt": "c", "id": "lacks", "task": "t", "metric": "contains"},
        {"prompt": "d", "id": "alone", "task": "u", "reference": None},
    )
    assert [item.metrics for item in found.items] == [("contains",), (), (), ()]
    assert found.unscored == ("blank", "lacks")


def test_raw_prompts_have_no_conversations(path: Path) -> None:
    found = read(path, {"prompt": "a"}, {"messages": [{"role": "user", "content": "b"}]}, raw=True)
    assert [item.raw for item in found.items] == [True]
    assert "need the chat template" in found.refused[0].reason


def test_the_shipped_prompts() -> None:
    whole = shipped_workload()
    assert whole.name == "shipped"
    tasks = ("multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag")
    assert whole.tasks == dict.fromkeys(tasks, 10)
    assert (whole.refused, whole.unscored) == ((), ())
    metrics = {item.task: item.metrics for item in whole.items}
    assert metrics == dict(
        zip(
            tasks,
            [(), ("rouge_l",), ("rouge_l",), *[(name,) for name in ("contains", "final_number", "contains")]],
            strict=True,
        )
    )
    assert len({str(item.content) for item in whole.items}) == 60
    passages = [str(item.content).split() for item in whole.items if item.task in ("summarization", "rag")]
    assert all(120 <= len(words) <= 300 for words in passages)
    assert list(shipped_workload(12).tasks.values()) == [2] * 6


def test_what_is_asked_of_a_passage_is_in_it() -> None:
    for item in shipped_workload().items:
        if item.task == "rag":
            assert METRICS["contains"](item, str(item.content)) == 1.0, item.name
        for name in item.metrics:
            assert METRICS[name](item, item.references[0]) == 1.0, item.name


def test_what_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidRequestError, match="is no regular file") as refused:
        read_workload(pipe)
    assert "write it to a file" in refused.value.hint


def test_a_mark_in_front_of_the_file_is_no_part_of_its_first_line(path: Path) -> None:
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n{"prompt": "b"}\r\n')
    found = read_workload(path)
    assert ([item.content for item in found.items], found.refused) == (["a", "b"], ())
    path.write_bytes(b'{"prompt": "a"}\n\xef\xbb\xbf{"prompt": "b"}\n')
    assert [each.reason[:11] for each in read_workload(path).refused] == ["is not JSON"]


def test_numbers_as_references_are_written_as_people_write_them(path: Path) -> None:
    lines = [{"prompt": "p", "reference": number} for number in (1e-05, 1e23, 18.0, -3)]
    found = read(path, *lines)
    assert [item.references for item in found.items] == [("0.00001",), ("1" + "0" * 23,), ("18.0",), ("-3",)]
    assert found.metrics == ("final_number",)
    assert METRICS["final_number"](found.items[0], "It is 0.00001.") == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_reference_that_is_no_number_is_refused(path: Path, number: str) -> None:
    found = read(path, f'{{"prompt": "a", "reference": {number}}}\n', {"prompt": "b"})
    assert [each.reason for each in found.refused] == ["has a 'reference' that is no number"]


@pytest.mark.parametrize("levels", [65, 300])
def test_a_line_nested_too_deep_is_refused(path: Path, levels: int) -> None:
    deep = "[" * levels + "]" * levels
    message = f'{{"messages": [{{"role": "user", "content": "a", "more": {deep}}}]}}\n'
    found = read(path, message, {"prompt": "b", "more": {"of": [1]}})
    assert [each.reason for each in found.refused] == ["is nested deeper than 64 levels"]
    assert [item.content for item in found.items] == ["b"]
