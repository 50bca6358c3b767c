"""Turns, equality, lines, targets and the page, over a scripted model and without any peer."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.environment import env_python, model_path
from benchmarks.page import Json
from benchmarks.speculation import __main__ as program
from benchmarks.speculation import peers as peers_module
from benchmarks.speculation.contestant import (
    AUTO,
    METHODS,
    PLAIN,
    STORE_OFF,
    STREAMS,
    Contestant,
    Counts,
    Method,
    Sample,
)
from benchmarks.speculation.page import frame, render
from benchmarks.speculation.peers import PEERS, Lookups, lookup_lines
from benchmarks.speculation.prompts import CODE, TASKS, Prompt, read_prompts, spec_bench_folder, spread, subset
from benchmarks.speculation.summary import ALL, acceptance, method_lines, stream_line
from benchmarks.speculation.targets import target_lines
from benchmarks.speculation.turns import Samples, TokensDifferError, check_off, many_streams, one_stream
from benchmarks.tests.test_session import FACTS
from offramp.core import DraftAsk, TokenTree
from offramp.engine.cost_table import CostTable, Curve
from offramp.llm.loading import LoadedModel
from offramp.testing.models import END_OF_TURN, chat_tokenizer, says, scripted_model

CHEAP = CostTable(
    num_layers=2,
    context=32,
    call=1e-3,
    layers=Curve(((1, 1e-3), (16, 1e-3), (64, 1e-3))),
    per_token=Curve(((1, 0.0), (64, 0.0))),
    head=Curve(((1, 0.0), (64, 0.0))),
)
"""A step takes 2 ms, however many rows it has: whatever is proposed runs."""
NGRAM = Method("ngram", "ngram")
QUESTIONS = [f"{task} {number}? " for number in range(2) for task in (*TASKS, CODE)]
ANSWERS = {question: f"{question[:3]}-{question[:3]}-{question[:3]}-{question[:3]}-." for question in QUESTIONS}
RUN = FACTS | {
    "model": "toy",
    "weights": "q8",
    "new_tokens": 32,
    "prompts_per_task": 2,
    "rounds": 2,
    "side_rounds": 1,
}


pytestmark = pytest.mark.usefixtures("unlearned")


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return scripted_model(says(*ANSWERS.items()), num_pages=80)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    encode = chat_tokenizer().encode
    return [Prompt(question.split()[0], question, encode(question)) for question in QUESTIONS]


@pytest.fixture(scope="module")
def samples(loaded: LoadedModel, prompts: list[Prompt]) -> Samples:
    methods = [PLAIN, AUTO, NGRAM]
    return one_stream(loaded, CHEAP, prompts, methods, new_tokens=32, rounds=2, side_rounds=1)


@pytest.fixture(scope="module")
def lines(loaded: LoadedModel, prompts: list[Prompt], samples: Samples) -> list[Json]:
    """As a whole run without peers tells them."""
    together = many_streams(loaded, CHEAP, prompts, new_tokens=16, rounds=2)
    found: list[Json] = [program.cost_line(CHEAP), {"result": "off", **check_off(samples["off"])}]
    found += [*method_lines(samples, [prompt.task for prompt in prompts]), stream_line(together)]
    found += target_lines(found)
    return [json.loads(json.dumps(line | {"provenance": RUN})) for line in found]


def test_every_method_writes_what_the_script_says(samples: Samples) -> None:
    """Contestants share K/V pages; the scripted model reads its history from them."""
    encode = chat_tokenizer().encode
    for name, rounds in samples.items():
        assert len(rounds) == (1 if name == "ngram" else 2)
        for runs in rounds:
            for question, sample in zip(QUESTIONS, runs, strict=True):
                assert sample.token_ids == [[*encode(ANSWERS[question]), END_OF_TURN]]


def test_steps_and_tokens_add_up(samples: Samples) -> None:
    for plain, drafted in zip(samples["off"][0], samples["ngram"][0], strict=True):
        assert plain.counts.steps == plain.decoded == plain.tokens - 1
        accepted = drafted.counts.accepted.total()
        assert drafted.decoded == drafted.counts.steps + accepted
        assert accepted > 0
        assert drafted.predicted_s == pytest.approx(0.002 * drafted.counts.steps)
        assert plain.predicted_s == pytest.approx(0.002 * plain.decoded)


def test_the_store_begins_empty_each_round(samples: Samples) -> None:
    """The same prompts in the same order once more, and not an accepted token more."""
    first, second = ([sample.counts.accepted for sample in runs] for runs in samples["auto"])
    assert first == second


def test_a_store_that_lives_on_has_the_answer(loaded: LoadedModel, prompts: list[Prompt]) -> None:
    """What fresh contestants guard against; without a store there is nothing to guard against."""

    def steps(method: Method) -> list[int]:
        contestant = Contestant(loaded, CHEAP, method)
        return [contestant.run([prompts[0].token_ids], 32).counts.steps for _ in range(2)]

    first, second = steps(AUTO)
    assert second < first
    first, second = steps(STORE_OFF)
    assert second == first


def test_other_tokens_end_the_run(loaded: LoadedModel, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Contestant.run

    def forged(self: Contestant, asked: list[list[int]], new_tokens: int) -> Sample:
        sample = honest(self, asked, new_tokens)
        return sample if self._options.draft == "off" else replace(sample, token_ids=[[7], *sample.token_ids[1:]])

    monkeypatch.setattr(Contestant, "run", forged)
    with pytest.raises(TokensDifferError, match=r"ngram wrote other tokens"):
        one_stream(loaded, CHEAP, prompts[:1], [PLAIN, NGRAM], new_tokens=8, rounds=1, side_rounds=1)


class Telltale:
    """A drafter that must not be asked."""

    max_nodes = 4

    def propose(self, asks: list[DraftAsk]) -> list[TokenTree]:
        raise LookupError("a drafter was called")


def test_off_never_calls_a_drafter(loaded: LoadedModel, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.llm.making.make_drafter", lambda name, settings: Telltale())
    Contestant(loaded, CHEAP, PLAIN).run([prompts[0].token_ids], 8)
    with pytest.raises(LookupError):
        Contestant(loaded, CHEAP, NGRAM).run([prompts[0].token_ids], 8)


def test_a_drafting_plain_run_is_found(samples: Samples) -> None:
    assert check_off(samples["off"])["num_drafts"] == 0
    with pytest.raises(AssertionError, match="with drafting off"):
        check_off(samples["ngram"])


def test_lines_tell_the_counts(lines: list[Json]) -> None:
    by_name = {(line["method"], line["task"]): line for line in lines if line["result"] == "method"}
    assert {method for method, _ in by_name} == {"auto", "ngram"}
    assert {task for _, task in by_name} == {ALL, *TASKS, CODE}
    whole = by_name["auto", ALL]
    assert (whole["prompts"], whole["rounds"], by_name["ngram", ALL]["rounds"]) == (12, 2, 1)
    assert sum(whole["num_accepted_tokens_per_pos"]) == whole["num_accepted_tokens"] > 0
    assert whole["num_accepted_tokens"] == sum(by_name["auto", task]["num_accepted_tokens"] for task in TASKS)
    assert whole["tokens_per_step"] > 1
    assert whole["predicted"] > 1
    [streams] = [line for line in lines if line["result"] == "streams"]
    assert (streams["streams"], streams["predicted"]) == (STREAMS, None)


def test_the_acceptance_length_is_that_of_the_engine() -> None:
    """An answer that ends within its draft has no bonus token there."""
    both = Counter({0: 2, 1: 2})
    counts = Counts(steps=2, draft_s=0, run_s=0, step_s=0, drafts=2, emitted=5, drafted=both, accepted=both)
    sample = Sample([[0] * 6], first=0, total=1, decoded=5, counts=counts, predicted_s=1, plain_step_s=1)
    assert acceptance([sample])["mean_acceptance_length"] == 2.5


def made(method: str, task: str, median: float, high: float) -> Json:
    ratio = {"median": median, "low": median - 0.1, "high": high}
    shares = {"draft": 0.1, "run": 1.6, "rest": 0.3}
    facts = {"ratio": ratio, "end_to_end": ratio, "ms_per_step": shares, "plain_ms_per_step": shares | {"run": 0.6}}
    counts = {"tokens_per_step": 2.2, "num_draft_tokens": 9, "num_accepted_tokens": 6, "mean_acceptance_length": 2.5}
    return {"result": "method", "method": method, "task": task, **facts, **counts}


def test_targets_are_met_by_medians_and_by_intervals() -> None:
    told = [made("auto", ALL, 1.3, 1.4), made("auto", "rag", 1.34, 1.5), made("auto", "qa", 0.96, 1.02)]
    told += [made("ngram", "qa", 0.5, 0.6), made("auto", "code", 1.4, 1.41)]
    targets = {line["what"]: line for line in target_lines(told)}
    assert set(targets) == {"rag", CODE, ALL, "worst task (qa)"}
    assert [targets[what]["met"] for what in ("rag", CODE, ALL, "worst task (qa)")] == [False, True, True, True]
    assert [targets[what]["stretch_met"] for what in (CODE, ALL)] == [True, False]
    assert targets["rag"]["step_cost"] == 2.0
    assert not targets["worst task (qa)"]["narrow"]
    [worst] = [line for line in target_lines([made("auto", "qa", 0.9, 0.99)]) if line["what"].startswith("worst")]
    assert not worst["met"]


def test_the_page_is_whole(lines: list[Json]) -> None:
    page = render(lines)
    for heading in ("Targets", "By task and method", "Acceptance by position", "Where the time", "Predicted"):
        assert f"\n## {heading}" in page
    for task in (ALL, *TASKS, CODE):
        assert f"\n| {task} | auto |" in page
    assert "made 0 drafts" in page
    assert "not quiet" not in page
    assert page.startswith(frame().split("\nNot measured")[0])
    assert "Not measured" in page.split("## Peers")[1]
    busy = RUN | {"load_at_start": [4.0, 4.0, 4.0]}
    assert "not quiet" in render([line | {"provenance": busy} for line in lines])


def test_a_miss_is_explained() -> None:
    told = [line | {"provenance": RUN} for line in target_lines([made("auto", "rag", 1.1, 1.2)])]
    page = render(told)
    assert "* rag: 1.10, since a step brought 2.20 tokens at 2.00 times the time of a plain one, 5.0% of it" in page
    assert "6 of 9 draft tokens were accepted, 2.50 tokens a drafted step." in page


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """llama.cpp's worker is a fake run by this Python; transformers has no environment."""
    start = "import sys; sys.path.append({root!r}); import runpy; "
    start += "runpy.run_module('benchmarks.tests.fake_lookup', run_name='__main__') # {module}"
    monkeypatch.setattr("benchmarks.worker.START", start)
    python = env_python(tmp_path, "llama")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    model_path(tmp_path, "Q8_0").parent.mkdir()
    model_path(tmp_path, "Q8_0").touch()
    return tmp_path


def test_peers_are_compared_with_themselves_or_named(
    environments: Path, prompts: list[Prompt], samples: Samples, lines: list[Json]
) -> None:
    lookups = Lookups(environments, threads=1, eos=[chat_tokenizer().encode(" ")[0]], most_tokens=4)
    llama, transformers = (replace(peer, prompts_per_task=1) for peer in PEERS)
    told = [*lookups.lines(llama, prompts, samples), *lookups.lines(transformers, prompts, samples)]
    by_name = {(line["lookup"], line["task"]): line for line in told if line["result"] == "lookup"}
    assert set(by_name) == {(lookup, task) for lookup in (2, 10) for task in (ALL, *TASKS, CODE)}
    whole = by_name[10, ALL]
    assert whole["ratio"]["median"] > 1.5  # 20 ms a token against 4, however late a busy machine wakes them
    assert (whole["equal"], whole["prompts"], whole["new_tokens"]) == (6, 6, 4)
    assert whole["ours"] is not None
    page = render([*lines, *[line | {"provenance": RUN} for line in told]])
    assert "| all six tasks | llama.cpp Q8_0 | 10 | 6 |" in page
    assert "Missing: transformers F32, no environment: transformers." in page


def test_a_slow_peer_gets_fewer_prompts(
    environments: Path, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "MOST_SECONDS", 0.0)
    told = list(Lookups(environments, threads=1, eos=[0], most_tokens=2).lines(PEERS[0], prompts, {}))
    assert {line["task"] for line in told if line["result"] == "lookup"} == {TASKS[0]}
    assert "1 of 14 prompts fitted" in render([line | {"provenance": RUN} for line in told])
    assert {line["ours"] for line in told if line["result"] == "lookup"} == {None}


def test_answers_that_differ_are_counted() -> None:
    plain = {"first": 1.0, "total": 2.0, "decoded": 4, "tokens": [1, 2, 3, 4, 5]}
    other = plain | {"total": 1.5, "tokens": [1, 2, 3, 4, 6]}
    [line] = lookup_lines({0: [plain, plain], 2: [plain, other]}, ["qa", "qa"], None)
    assert (line["equal"], line["prompts"]) == (1, 2)
    assert line["ratio"]["median"] == round(2 / 1.5, 4)


def test_prompts_come_from_the_named_folder(
    loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [{"id": f"{task}-{number}", "task": task, "prompt": f"{number}"} for task in TASKS for number in "0123"]
    (tmp_path / "spec_bench.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (tmp_path / "humaneval.jsonl").write_text(json.dumps({"id": "h", "task": "code", "prompt": "def f"}) + "\n")
    monkeypatch.setenv("OFFRAMP_DATA", str(tmp_path))
    prompts = read_prompts(spec_bench_folder(), loaded, 2)
    assert [prompt.name for prompt in prompts[:8]] == [*(f"{task}-0" for task in TASKS), "h", f"{TASKS[0]}-2"]
    assert len(prompts) == 13
    decode = loaded.tokenizer.decode
    assert decode(prompts[6].token_ids) == "def f"
    assert prompts[7].token_ids == loaded.template.encode_chat(loaded.tokenizer, [{"role": "user", "content": "2"}])
    assert [prompts[place].task for place in subset(prompts, 1)] == [*TASKS, CODE]


def test_prompts_are_spread() -> None:
    assert spread(range(40), 4) == [0, 10, 20, 30]
    assert spread([1, 2], 10) == [1, 2]


@pytest.mark.parametrize("folder", [None, "", "empty"])
def test_without_data_it_says_what_is_missing(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFRAMP_DATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("OFFRAMP_DATA", folder and str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["speculation", "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"(?s)error: .*(not set|does not exist).*hint: set OFFRAMP_DATA"):
        program.main()
    assert not (tmp_path / "out").exists()


def test_what_is_not_registered_is_named(
    loaded: LoadedModel, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "METHODS", (*METHODS, Method("oracle", "oracle")))
    args = argparse.Namespace(parts=["one"], new_tokens=2, rounds=1, side_rounds=0)
    monkeypatch.setattr(program, "warm", lambda loaded, table: None)
    told = list(program.own_results(loaded, CHEAP, prompts[:1], args, {}))
    [missing] = [line for line in told if line["result"] == "missing"]
    assert missing["weights"] == "oracle"
