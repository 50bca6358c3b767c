"""The model's own answers: kept as they come, written once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offramp import LLM, SamplingParams
from offramp.errors import InvalidRequestError
from offramp.train.exits import answers as module
from offramp.train.exits.answers import Answer, check_prompts, check_usable, part_of, read_answers, write_answers

PROMPTS = [f"say {i}" for i in range(6)]


def write(
    llm: LLM, path: Path, prompts: list[str] = PROMPTS, *, most: int = 10**6, temperature: float = 0.0
) -> list[str]:
    """What was told."""
    told: list[str] = []
    write_answers(
        llm,
        prompts,
        path,
        max_tokens=5,
        temperature=temperature,
        seed=3,
        may_go_on=lambda done: done < most,
        say=told.append,
    )
    return told


@pytest.fixture
def llm(toy_model: str, monkeypatch: pytest.MonkeyPatch) -> LLM:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    return LLM(toy_model, threads=1, draft="off")


def test_answers_are_the_models_own(llm: LLM, tmp_path: Path) -> None:
    assert write(llm, tmp_path / "a") == [], "nothing was passed over"
    answers = read_answers(tmp_path / "a")
    assert [answer.number for answer in answers] == list(range(6))
    chat = llm.chat([{"role": "user", "content": "say 4"}], SamplingParams(temperature=0, max_tokens=5))
    assert (list(answers[4].prompt), list(answers[4].answer)) == (chat.prompt_token_ids, chat.outputs[0].token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_interrupted_writing_goes_on(llm: LLM, tmp_path: Path, temperature: float) -> None:
    write(llm, tmp_path / "whole", temperature=temperature)
    write(llm, tmp_path / "parts", most=3, temperature=temperature)
    parts = read_answers(tmp_path / "parts")
    assert len(parts) == 4
    text = (tmp_path / "parts").read_text()
    (tmp_path / "parts").write_text(text + '{"number": 4, "pro')  # killed while writing
    assert read_answers(tmp_path / "parts") == parts
    write(llm, tmp_path / "parts", temperature=temperature)
    assert (tmp_path / "parts").read_text() == (tmp_path / "whole").read_text()


def test_some_answers_may_be_greedy_where_others_are_drawn(llm: LLM, tmp_path: Path) -> None:
    def answers(name: str, temperature: float, drawn: set[str] | None) -> list[Answer]:
        write_answers(
            llm,
            PROMPTS,
            tmp_path / name,
            max_tokens=5,
            temperature=temperature,
            seed=3,
            may_go_on=lambda done: True,
            say=lambda line: None,
            drawn=None if drawn is None else drawn.__contains__,
        )
        return read_answers(tmp_path / name)

    greedy, drawn = answers("greedy", 0.0, None), answers("drawn", 5.0, None)
    some = answers("some", 5.0, {PROMPTS[1], PROMPTS[4]})
    assert all(one.answer != other.answer for one, other in zip(greedy, drawn, strict=True))
    assert some == [drawn[i] if i in (1, 4) else greedy[i] for i in range(6)]


def test_prompts_without_room_are_passed_over(llm: LLM, tmp_path: Path) -> None:
    told = write(llm, tmp_path / "a", ["x" * 300, "short"])
    assert told == [f"1 prompt is passed over: 5 tokens more exceed the context of {llm.max_context}"]
    assert [answer.number for answer in read_answers(tmp_path / "a")] == [1]


def test_too_few_prompts_are_refused_before_they_are_answered() -> None:
    check_prompts([f"prompt {i}" for i in range(200)], 0.1, seed=0)
    with pytest.raises(InvalidRequestError, match="2 prompts are too few: none is left for"):
        check_prompts(["one", "two"], 0.1, seed=0)


def test_parts_are_three_and_all_are_needed() -> None:
    parts = [part_of(f"prompt {i}", 0.2, seed=0) for i in range(200)]
    assert {part: parts.count(part) > 20 for part in set(parts)} == dict.fromkeys(
        ("heads", "predictors", "validation"), True
    )
    answers = [Answer(i, (1,), (2, 3)) for i in range(3)]
    check_usable(answers, {0: "heads", 1: "predictors", 2: "validation"})
    with pytest.raises(InvalidRequestError, match="no usable prompts for predictors"):
        check_usable(answers, {0: "heads", 1: "heads", 2: "validation"})
    with pytest.raises(InvalidRequestError, match="no usable prompts for heads: 1"):
        check_usable([Answer(0, (1,), (2,))], {0: "heads"})


def test_the_file_is_lines_of_json(llm: LLM, tmp_path: Path) -> None:
    write(llm, tmp_path / "a", most=1)
    assert [json.loads(line)["number"] for line in (tmp_path / "a").read_text().splitlines()] == [0, 1]
