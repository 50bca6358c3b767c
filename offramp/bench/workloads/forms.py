"""What lines of published data sets and of users' own files look like, and what is asked in each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from offramp.bench.results.cells import ALL
from offramp.bench.workloads.item import CodeTest
from offramp.bench.workloads.judging import NAMED
from offramp.errors import InvalidRequestError
from offramp.llm.prompts import as_messages
from offramp.prompt_lines import NO_CONTENT, Message, content_of
from offramp.quality.numbers import final_number

Fields = Mapping[str, object]

MULTI_TURN, MATH, CODE, PARSING = "multi_turn", "math_reasoning", "code", "semantic_parsing"
"""Tasks that lines of a form have where they name none."""

OWN_TASKS = ("translation", "summarization", "qa", MATH, "rag")
"""Spec-Bench's categories that are tasks; the others are kinds of conversations."""

MOST_CHARACTERS = 200
"""Of a name."""


class BadFieldError(ValueError):
    """A line that can't be run: says why, after its place in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a line says. None: it says nothing of that."""

    content: str | Sequence[Message]
    references: tuple[str, ...] = ()
    code: CodeTest | None = None
    metric: str | None = None
    task: str | None = None
    name: str | None = None
    continued: bool = False  # without the chat template, whatever the run asks


def asked(fields: Fields) -> Asked:
    """What a line asks, in whichever form. Raises BadFieldError."""
    _check_characters(fields)
    for needed, read in FORMS.items():
        if all(name in fields for name in needed):
            return read(fields)
    return _generic(fields)


def _human_eval(fields: Fields) -> Asked:
    """`task_id`, `prompt`, `canonical_solution`, `test`, `entry_point`; solution and id also under our names."""
    prompt, entry_point = _text(fields, "prompt"), _text(fields, "entry_point")
    if not entry_point.isidentifier():
        raise BadFieldError("has an 'entry_point' that is no name of Python")
    solution = "canonical_solution" if "canonical_solution" in fields else "reference"
    return Asked(
        content=prompt,
        references=_texts(fields, solution),
        code=CodeTest(before=prompt, after=_text(fields, "test"), entry_point=entry_point),
        task=_label(fields, "task") or CODE,
        name=_label(fields, "task_id") or _label(fields, "id"),
        continued=True,
    )


def _spec_bench(fields: Fields) -> Asked:
    """`question_id`, `category`, `turns`, perhaps `reference`. Of several turns, references are one each."""
    turns = fields["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise BadFieldError("has 'turns' that are no list of texts")
    references = _references(fields)
    category = _label(fields, "category")
    task = category if category is None or category in OWN_TASKS else MULTI_TURN
    return Asked(
        content=turns[0],
        references=references[:1] if len(turns) > 1 else references,
        metric=_metric(fields, references),
        task=_label(fields, "task") or task,
        name=_label(fields, "question_id") or _label(fields, "id"),
    )


def _pair(question: str, answer: str, task: str) -> Callable[[Fields], Asked]:
    """What reads lines of a question and its answer under names of their own."""

    def read(fields: Fields) -> Asked:
        references = _texts(fields, answer)
        return Asked(
            content=_text(fields, question),
            references=references,
            metric=_metric(fields, references),
            task=_label(fields, "task") or task,
            name=_label(fields, "id"),
        )

    return read


def _generic(fields: Fields) -> Asked:
    """`prompt` or `messages`, perhaps `reference` or `references`, `metric`, `task`, `id`."""
    content = content_of(fields)
    if content is None:
        raise BadFieldError(f"{NO_CONTENT}, nor the fields of a form that is known")
    if not isinstance(content, str):
        _check_messages(content)
    references = _references(fields)
    return Asked(
        content=content,
        references=references,
        metric=_metric(fields, references),
        task=_label(fields, "task"),
        name=_label(fields, "id"),
    )


FORMS: Mapping[tuple[str, ...], Callable[[Fields], Asked]] = {
    ("prompt", "test", "entry_point"): _human_eval,
    ("turns",): _spec_bench,
    ("question", "answer"): _pair("question", "answer", MATH),  # GSM8K
    ("utterance", "semantic_parse"): _pair("utterance", "semantic_parse", PARSING),  # as TOPv2 names its columns
}
"""Fields by which a form is known -> what reads it; a line without all of any is generic."""


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise BadFieldError(f"has a {name!r} that is no text")
    return value


def _references(fields: Fields) -> tuple[str, ...]:
    """Those of `references`, or else of `reference`."""
    return _texts(fields, "references") or _texts(fields, "reference")


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """One text or number, or a list of them; blank ones count as missing."""
    value = fields.get(name)
    values = value if isinstance(value, list) else [] if value is None else [value]
    texts = [_reference(each, name) for each in values]
    return tuple(text for text in texts if text.strip())


def _reference(value: object, name: str) -> str:
    """Numbers as people and models write them: 0.00001, never 1e-05."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFieldError(f"has a {name!r} that is neither a text nor a list of texts")
    number = Decimal(str(value))
    if not number.is_finite():
        raise BadFieldError(f"has a {name!r} that is no number")
    return f"{number:f}"


def _label(fields: Fields, name: str) -> str | None:
    """A task or an id, as tables show them."""
    value = fields.get(name)
    if value is None:
        return None
    label = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not label or len(label) > MOST_CHARACTERS or not label.isprintable():
        raise BadFieldError(f"has a {name!r} that is no name of at most {MOST_CHARACTERS} printable characters")
    if name == "task" and label == ALL:
        raise BadFieldError(f"has the task {ALL!r}, which stands for all tasks together")
    return label


def _metric(fields: Fields, references: tuple[str, ...]) -> str | None:
    metric = fields.get("metric")
    if metric is None:
        return None
    if not isinstance(metric, str) or metric not in NAMED:
        raise BadFieldError(f"has a 'metric' that is none of {', '.join(NAMED)}")
    if metric == "final_number" and not all(final_number(each) is not None for each in references):
        raise BadFieldError("has a reference without a number, which 'final_number' needs")
    return metric


def _check_messages(messages: Sequence[object]) -> None:
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadFieldError("has 'messages' of which one is no object with a role")
    try:
        as_messages(messages)  # type: ignore[arg-type]  # checked above
    except InvalidRequestError as error:
        raise BadFieldError(f"has {error.message}") from error


def _check_characters(fields: Fields) -> None:
    """JSON can spell halves of characters, which are no text."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadFieldError("holds half of a character (a lone surrogate)") from error
