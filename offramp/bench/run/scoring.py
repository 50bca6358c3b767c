"""How good the answers of a first round are. Equal answers are judged once, whoever gave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offramp.bench.quality import METRICS
from offramp.bench.results.lines import PERPLEXITY, ItemLine, Line, ScoreLine
from offramp.bench.workloads.item import Item, Workload
from offramp.errors import OfframpError


def missing_scores(workload: Workload, lines: Iterable[Line]) -> tuple[list[ScoreLine], dict[str, str]]:
    """Scores of the workload's answers that the lines lack; and metrics that can't be had here, with the reason."""
    items = {item.name: item for item in workload.items}
    answers: list[ItemLine] = []
    known: set[tuple[str, str, str]] = set()
    for line in lines:
        if isinstance(line, ScoreLine) and line.workload == workload.name:
            known.add((line.method, line.item, line.metric))
        elif isinstance(line, ItemLine) and line.workload == workload.name and line.text is not None:
            answers.append(line)
    scores: list[ScoreLine] = []
    judged: dict[tuple[str, str, str], float] = {}  # item, metric, text
    skipped: dict[str, str] = {}
    for answer in answers:
        item = items[answer.item]
        for metric in item.metrics:
            if (answer.method, item.name, metric) in known or metric in skipped:
                continue
            assert answer.text is not None
            case = item.name, metric, answer.text
            try:
                value = judged[case] if case in judged else METRICS[metric](item, answer.text)
            except OfframpError as error:
                skipped[metric] = error.message
                continue
            judged[case] = value
            scores.append(
                ScoreLine(
                    workload=workload.name,
                    task=item.task,
                    item=item.name,
                    method=answer.method,
                    metric=metric,
                    value=value,
                )
            )
    return scores, skipped


def unjudged(workload: Workload, method: str, lines: Iterable[Line]) -> list[Item]:
    """Items with a reference whose perplexity the lines lack."""
    known = perplexities(workload, method, lines)
    return [item for item in workload.items if item.references and item.name not in known]


def perplexity_lines(
    workload: Workload, method: str, items: Iterable[Item], values: Mapping[str, float]
) -> list[ScoreLine]:
    """Those that are known, by item."""
    return [
        ScoreLine(
            workload=workload.name,
            task=item.task,
            item=item.name,
            method=method,
            metric=PERPLEXITY,
            value=values[item.name],
        )
        for item in items
        if item.name in values
    ]


def perplexities(workload: Workload, method: str, lines: Iterable[Line]) -> dict[str, float]:
    """Those that a method has, by item."""
    at = workload.name, method, PERPLEXITY
    scores = (line for line in lines if isinstance(line, ScoreLine))
    return {line.item: line.value for line in scores if (line.workload, line.method, line.metric) == at}
