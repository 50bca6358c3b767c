"""A JSONL file as a workload: lines that can be run, and those that can't with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from offramp.bench.results.cells import ALL
from offramp.bench.workloads.forms import Asked, BadFieldError, asked
from offramp.bench.workloads.item import Item, Refused, Workload
from offramp.bench.workloads.judging import metric_of
from offramp.errors import InvalidRequestError
from offramp.params import check_int
from offramp.prompt_lines import HINT, BadLine, entries, file_hash

SHIPPED = Path(__file__).parent / "shipped.jsonl"


def shipped_workload(limit: int | None = None) -> Workload:
    """60 prompts that come with the package: ten of each of six tasks."""
    return read_workload(SHIPPED, limit=limit)


def read_workload(path: Path, *, name: str | None = None, limit: int | None = None, raw: bool = False) -> Workload:
    """The prompts of a file, `limit` of them at most, taken from its tasks in turn; `name` is else the file's.

    `raw`: continued as they are, without the chat template. A second line of the same id gets its line's number
    behind it. Raises InvalidRequestError if the file can't be read or no line can be run.
    """
    check_int("limit", limit, 1, optional=True)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidRequestError(
            f"{path} is no regular file", hint="it is read twice: write it to a file", param="workload"
        )
    name = path.stem if name is None else name
    unnamed = "prompts" if name == ALL else name
    sha256 = file_hash(path)
    lines: dict[str, tuple[Asked, str]] = {}  # by unique names: what is asked, the task
    refused: list[Refused] = []
    for each in _lines(path, raw):
        if isinstance(each, Refused):
            refused.append(each)
        else:
            number, line = each
            lines[_unique(line.name, number, lines)] = line, line.task or unnamed
    if not lines:
        why = f": {refused[0].where} {refused[0].reason}" if refused else ""
        raise InvalidRequestError(f"{path} holds no prompt that can be run{why}", hint=HINT, param="workload")
    derived = _derived_metrics(list(lines.values()))
    items = [
        Item(
            name=unique,
            task=task,
            content=line.content,
            references=line.references,
            code=line.code,
            metrics=_metrics(line, derived.get(task)),
            raw=raw or line.continued,
        )
        for unique, (line, task) in lines.items()
    ]
    chosen = items if limit is None else in_turn(items, limit)
    metrics = dict.fromkeys(metric for item in chosen for metric in item.metrics)
    return Workload(name=name, items=tuple(chosen), metrics=tuple(metrics), sha256=sha256, refused=tuple(refused))


def check_streams(workload: Workload, streams: int) -> None:
    """Refuse more streams than there are prompts: figures would be told of more than ever ran at once."""
    count = len(workload.items)
    if streams > count:
        prompts = f"{count} prompt{'s' if count > 1 else ''}"
        message = f"--streams {streams}, and {workload.name} has {prompts} to run at once"
        raise InvalidRequestError(message, hint="give more prompts, or fewer streams", param="streams")


def check_readable(workload: Workload, model: str, *, chat: bool) -> None:
    """Refuse prompts for a chat template where a model has none; `chat`: it has one."""
    if not chat and any(not item.raw for item in workload.items):
        hint = "add --raw, with prompts of your own, to take them as they are"
        raise InvalidRequestError(f"{model} has no chat template", hint=hint, param="raw")


def in_turn(items: Sequence[Item], limit: int) -> list[Item]:
    """So many items, the first of each task, then the second of each, and so on; in the order of the file."""
    by_task: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        by_task.setdefault(item.task, []).append(place)
    turns = [place for turn in zip_longest(*by_task.values()) for place in turn if place is not None]
    return [items[place] for place in sorted(turns[:limit])]


def _lines(path: Path, raw: bool) -> Iterator[tuple[int, Asked] | Refused]:
    """What each line asks, behind its number, or why it can't be run."""
    for line in entries(path):
        if isinstance(line, BadLine):
            yield Refused(where=line.where, reason=line.reason)
            continue
        try:
            wish = asked(line.fields)
            if raw and not isinstance(wish.content, str):
                raise BadFieldError("has messages, which need the chat template")
            yield line.number, wish
        except BadFieldError as error:
            yield Refused(where=line.where, reason=str(error))


def _unique(name: str | None, number: int, taken: Mapping[str, object]) -> str:
    unique = name or f"line {number}"
    while unique in taken:
        unique += f" (line {number})"
    return unique


def _derived_metrics(lines: Sequence[tuple[Asked, str]]) -> Mapping[str, str]:
    """Of each task whose lines have references and name no metric: by one for all of them, whatever the limit."""
    references: dict[str, list[str]] = {}
    for line, task in lines:
        if line.references and line.metric is None and line.code is None:
            references.setdefault(task, []).extend(line.references)
    return {task: metric_of(texts) for task, texts in references.items()}


def _metrics(line: Asked, derived: str | None) -> tuple[str, ...]:
    if line.code is not None:
        return ("pass_at_1",)
    if not line.references:
        return ()
    metric = line.metric or derived
    assert metric is not None, "a line with references and without a metric has its task's"
    return (metric,)
