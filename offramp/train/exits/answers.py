"""The model's own answers to the prompts, written by the engine and kept one a line, so that none is written twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError
from offramp.llm.llm import LLM
from offramp.train.pairs import held_out
from offramp.train.say import Say

AT_ONCE = 32
"""Prompts that are answered together between two looks at the clock."""

PartName = Literal["heads", "predictors", "validation"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt's ids and those that the model continued it with."""

    number: int  # of the prompt in its file
    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Tokens that an exit may yield: not the first, which comes with the prompt."""
        return len(self.answer) - 1


def part_of(prompt: str, share: float, seed: int) -> PartName:
    """What a prompt is used for; depends on it and the seed alone."""
    if held_out(prompt, share, seed):
        return "validation"
    return "predictors" if held_out(prompt, 2 * share, seed) else "heads"


def read_answers(path: Path) -> list[Answer]:
    """Those that were kept; a line that was cut off is as if it were not there."""
    if not path.exists():
        return []
    answers = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            answers.append(Answer(fields["number"], tuple(fields["prompt"]), tuple(fields["answer"])))
    return answers


def write_answers(
    llm: LLM,
    prompts: Sequence[str],
    path: Path,
    *,
    max_tokens: int,
    temperature: float,
    seed: int,
    may_go_on: Callable[[int], bool],
    say: Say,
    at_once: int | None = None,
    drawn: Callable[[str], bool] | None = None,
) -> None:
    """Answer the prompts that have no answer yet, in order, while `may_go_on(how many have one)`.

    Through the chat template where the model has one. Prompts without room for an answer are passed over, and told of.
    `at_once` prompts are answered between two looks at the clock (None: `AT_ONCE`). Where `drawn` is given, prompts
    for which it is false are answered greedily, whatever the temperature.
    """
    kept = read_answers(path)
    _rewrite(path, kept)
    numbers = range(kept[-1].number + 1 if kept else 0, len(prompts))
    num_long = 0
    with path.open("a", encoding="utf-8") as file:
        step = at_once or AT_ONCE
        for start in range(0, len(numbers), step):
            if not may_go_on(numbers[start]):
                break
            some = [(number, _encode(llm, prompts[number])) for number in numbers[start : start + step]]
            fitting = [(number, ids) for number, ids in some if len(ids) + max_tokens <= llm.max_context]
            num_long += len(some) - len(fitting)
            params = [
                SamplingParams(
                    temperature=temperature if drawn is None or drawn(prompts[number]) else 0.0,
                    max_tokens=max_tokens,
                    seed=seed + number,
                )
                for number, _ in fitting
            ]
            outputs = llm.generate([ids for _, ids in fitting], params) if fitting else []
            for (number, ids), output in zip(fitting, outputs, strict=True):
                fields = {"number": number, "prompt": ids, "answer": output.outputs[0].token_ids}
                file.write(json.dumps(fields) + "\n")
            file.flush()
    if num_long:
        passed = "1 prompt is" if num_long == 1 else f"{num_long} prompts are"
        say(f"{passed} passed over: {max_tokens} tokens more exceed the context of {llm.max_context}")


def check_prompts(prompts: Sequence[str], share: float, seed: int) -> None:
    """Raise InvalidRequestError unless there is a prompt for every part: more are needed than those."""
    parts = Counter(part_of(prompt, share, seed) for prompt in prompts)
    for part in get_args(PartName):
        if not parts[part]:
            raise InvalidRequestError(
                f"{len(prompts)} prompts are too few: none is left for {part}",
                hint=f"give more prompts; each part gets {share:.0%} of them at least, by chance",
            )


def check_usable(answers: Sequence[Answer], parts: dict[int, PartName]) -> None:
    """Raise InvalidRequestError unless every part has tokens to learn from."""
    for part in get_args(PartName):
        if not any(answer.num_rows > 0 and parts[answer.number] == part for answer in answers):
            raise InvalidRequestError(
                f"no usable prompts for {part}: {len(answers)} prompts got an answer", hint="give more prompts"
            )


def _rewrite(path: Path, answers: Sequence[Answer]) -> None:
    """Drop a line that was cut off."""
    lines = [json.dumps({"number": a.number, "prompt": a.prompt, "answer": a.answer}) + "\n" for a in answers]
    path.write_text("".join(lines), encoding="utf-8")


def _encode(llm: LLM, prompt: str) -> list[int]:
    model = llm.model
    if model.template.available:
        return model.template.encode_chat(model.tokenizer, [{"role": "user", "content": prompt}])
    return model.tokenizer.encode(prompt)
