"""A toy model that is its own student: policies tried, turns taken, lines and page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.little import __main__ as program
from benchmarks.little import turns
from benchmarks.little.asked import PARSING, SUMMARIES, Asked, Prompts, parsing, summaries
from benchmarks.little.page import render, write_page
from benchmarks.little.summary import paired_change, result_lines, tried_lines
from benchmarks.little.turns import DRAFTING, WRITING, Tried, choose, take_turns, try_policies
from benchmarks.page import Json
from benchmarks.speculation.contestant import Contestant, Sample
from benchmarks.speculation.turns import TokensDifferError
from benchmarks.tests.test_session import FACTS
from benchmarks.tests.test_speculation import CHEAP
from offramp.bench.quality import METRICS
from offramp.bench.workloads.item import Item
from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.llm.draft_model import with_draft_model
from offramp.llm.loading import LoadedModel, load_model
from offramp.testing.models import write_chat_model
from offramp.train.pairs import held_out

RUN = FACTS | {
    "model": "toy",
    "weights": "q8",
    "task": "summaries",
    "new_tokens": 8,
    "tuning": 1,
    "prompts": 2,
    "rounds": 2,
}
BOLD = BigLittlePolicy(rollback=1e6, fallback=0.0, max_run=4)
SHY = BigLittlePolicy(rollback=0.0, fallback=0.0, max_run=2)


pytestmark = pytest.mark.usefixtures("unlearned")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    folder = tmp_path_factory.mktemp("little")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFRAMP_CACHE", str(folder / "cache"))
        path = write_chat_model(folder / "toy.gguf")
        yield with_draft_model(load_model(path, threads=1), path, threads=1)


@pytest.fixture(scope="module")
def prompts(loaded: LoadedModel) -> list[Asked]:
    texts = ("Sum this up: one two.", "And this: three four.")
    items = [
        Item(name=text, task="summarization", content=text, references=(text,), metrics=("rouge_l",)) for text in texts
    ]
    return [Asked(item, loaded.tokenizer.encode(str(item.content))) for item in items]


@pytest.fixture(scope="module")
def lines(loaded: LoadedModel, prompts: list[Asked]) -> list[Json]:
    tried = try_policies(loaded, CHEAP, prompts[:1], [BOLD, SHY], 8)
    told = take_turns(loaded, CHEAP, prompts, BOLD, new_tokens=8, rounds=2)
    found = [*tried_lines(tried, tried[0]), *result_lines(prompts, told, loaded)]
    return [json.loads(json.dumps(line | {"provenance": RUN})) for line in found]


def of_kind(lines: list[Json], kind: str) -> list[Json]:
    return [line for line in lines if line["result"] == kind]


def test_the_student_writes_what_it_may(lines: list[Json]) -> None:
    drafting, writing = of_kind(lines, "method")
    assert (drafting["method"], writing["method"]) == (DRAFTING.name, WRITING)
    assert drafting["tokens"] == drafting["plain_tokens"]
    assert drafting["change"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert writing["little_share"] > 0.5
    [target] = of_kind(lines, "target")
    assert target["met"] == (target["ratio"]["median"] >= 1.4 and target["change"]["mean"] >= -0.01)


def test_the_page_tells_all_of_it(lines: list[Json], tmp_path: Path) -> None:
    path = tmp_path / "training" / "student.json"
    path.parent.mkdir()
    about = {"recipe": {"layers": [0, 2]}, "prompts": {"answered": 7}, "tokens": 900, "steps": 20, "minutes": 3.4}
    about["validation"] = {"tested": [9], "accepted": [0.625], "tokens_a_draft": 0.6}
    path.write_text(json.dumps(about))
    student = program.student_line(path, 4) | {"provenance": RUN}
    results = tmp_path / "lines.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in [student, *lines]))
    write_page(results, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "layers 0, 2 of its teacher's 4; 900 tokens of 7 answers, 20 steps, 3 minutes" in page
    assert "0.625" in page
    for line in of_kind(lines, "method"):
        assert f"| {line['method']} | {line['ratio']['median']:.2f} (" in page
    assert page.count("| yes |\n") == 1  # the policy that was chosen


def test_without_a_policy_nobody_writes(loaded: LoadedModel, prompts: list[Asked]) -> None:
    told = take_turns(loaded, CHEAP, prompts[:1], None, new_tokens=4, rounds=1)
    found = [line | {"provenance": RUN} for line in result_lines(prompts[:1], told, loaded)]
    assert [line["result"] for line in found] == ["method", "missing"]
    assert "Not measured: student writes, no policy" in render(found)


def test_another_answer_of_the_drafter_is_found(
    loaded: LoadedModel, prompts: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Liar(Contestant):
        def run(self, token_ids: list[list[int]], new_tokens: int) -> Sample:  # type: ignore[override]
            sample = super().run(token_ids, new_tokens)
            if self._options.draft != DRAFTING.draft:
                return sample
            return replace(sample, token_ids=[[*sample.token_ids[0][:-1], sample.token_ids[0][-1] + 1]])

    monkeypatch.setattr(turns, "Contestant", Liar)
    with pytest.raises(TokensDifferError):
        take_turns(loaded, CHEAP, prompts[:1], None, new_tokens=4, rounds=1)


def test_the_fastest_that_is_good_enough_is_chosen() -> None:
    def tried(ratio: float, change: float) -> Tried:
        return Tried(SHY, ratio, 0.2, change)

    good, better, bad = tried(1.2, -0.004), tried(1.3, 0.01), tried(2.0, -0.006)
    assert choose([good, better, bad], 0.005) is better
    assert choose([bad, tried(0.9, 0.0)], 0.005) is None


def test_changes_are_paired() -> None:
    assert paired_change([0.1, 0.5, 0.9], [0.2, 0.6, 1.0]) == {"mean": 0.1, "low": 0.1, "high": 0.1}
    found = paired_change([0.0] * 50, [0.1, -0.1] * 25)
    assert found["mean"] == 0.0
    assert found["low"] < -0.01 < 0.01 < found["high"]


def test_prompts_with_texts_to_sum_up(loaded: LoadedModel, tmp_path: Path) -> None:
    long = "word " * 150
    dolly = [
        {"id": "a", "task": "instruct", "prompt": f"Summarize this. {long}", "reference": "words"},
        {"id": "b", "task": "instruct", "prompt": f"Who wrote this? {long}", "reference": "nobody"},
        {"id": "c", "task": "instruct", "prompt": f"{long} TL;DR", "reference": ""},
    ]
    spec = [
        {"id": "d", "task": "summarization", "prompt": "Summarize: x", "reference": "x"},
        {"id": "e", "task": "qa", "prompt": "Summarize: y", "reference": "y"},
    ]
    for name, found in (("dolly2k.jsonl", dolly), ("spec_bench.jsonl", spec)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in found))
    asked = summaries(tmp_path, loaded, 5, 5)
    assert [each.item.name for each in asked.tuning] == ["a"]
    assert [each.item.name for each in asked.reported] == ["d"]
    assert {each.item.metrics for each in [*asked.tuning, *asked.reported]} == {("rouge_l",)}


def test_pairs_that_the_parser_has_not_seen(loaded: LoadedModel, tmp_path: Path) -> None:
    pairs = [{"id": str(n), "task": "parsing", "prompt": f"play song {n}", "reference": f"[{n}]"} for n in range(60)]
    (tmp_path / "snips_train.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    recipe = {"recipe": {"held_out": 0.5, "seed": 3}}
    aside = {pair["prompt"] for pair in pairs if held_out(pair["prompt"], 0.5, 3)}
    found = parsing(tmp_path, recipe, loaded, 4, 8)
    assert (len(found.tuning), len(found.reported)) == (4, 8)
    asked = [each.item.content for each in [*found.tuning, *found.reported]]
    assert len(set(asked)) == 12
    assert set(asked) <= aside
    [right] = found.tuning[0].item.references
    assert [METRICS[name](found.tuning[0].item, right) for name in found.tuning[0].item.metrics] == [1.0]
    assert [METRICS[name](found.tuning[0].item, "[x]") for name in found.tuning[0].item.metrics] == [0.0]


def test_tasks_are_told_apart(lines: list[Json], tmp_path: Path) -> None:
    other = [line | {"provenance": line["provenance"] | {"task": PARSING}} for line in lines]
    page = render([*lines, *other])
    assert page.index("## Texts to sum up") < page.index("| ROUGE-L, %") < page.index("## Requests to parse")
    assert page.index("## Requests to parse") < page.index("exact match, %")
    assert "## Requests" not in render(lines)
    results = tmp_path / "lines.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *other]))
    kept = program.kept_lines(results, SUMMARIES)
    assert [json.loads(line) for line in kept] == other
    assert program.kept_lines(tmp_path / "none.jsonl", SUMMARIES) == []


def test_a_whole_run(
    loaded: LoadedModel, prompts: list[Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "load_model", lambda *args, **kwargs: loaded)
    monkeypatch.setattr(program, "with_draft_model", lambda *args, **kwargs: loaded)
    monkeypatch.setattr(program, "cost_table", lambda loaded: CHEAP)
    monkeypatch.setattr(program, "student_line", lambda *args: {"result": "student"})
    monkeypatch.setattr(program, "summaries", lambda *args: Prompts(prompts[:1], prompts))
    args = argparse.Namespace(model="toy", student=tmp_path, task=SUMMARIES, weights="q8", threads=1, new_tokens=20)
    args.tuning, args.prompts, args.rounds, args.policies = 1, 2, 1, 2
    kinds = [line["result"] for line in program.results(args, tmp_path)]
    assert kinds[:4] == ["student", "tried", "tried", "method"]
