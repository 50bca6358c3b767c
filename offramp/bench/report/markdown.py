"""The figures as Markdown: what they come to, what went wrong, one table a workload."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from offramp.bench.report.figures import MISSING, change, figure, metric_name, ratio, share, size, with_span
from offramp.bench.report.given import Given, Part
from offramp.bench.report.html import clean, cut
from offramp.bench.report.notices import notices
from offramp.bench.report.peers import Comparison, Peers
from offramp.bench.report.sections.provenance import place_and_time
from offramp.bench.report.verdict import verdict
from offramp.bench.results.cells import ALL, Cell, Interval

SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$])")
LIST = re.compile(r"^(\d*)([-+.)] )")
"""What would begin a list."""
WORD_LETTERS = 200
MOST_ROWS = 600
HEAD = (
    *("method", "promise", "task", "streams", "equal", "quality"),
    *("decode, tokens/s", "times plain", "end to end, tokens/s", "times plain"),
    *("first token, ms", "token, ms: median / p90 / p99", "memory", "J/token", "accepted", "layers", "prompts"),
)
PEER_HEAD = ("case", "offramp", "other engine", "offramp's speed", "its speed", "offramp / it")


def markdown(files: Sequence[Given | Peers]) -> str:
    """The files one after the other."""
    return "\n".join(line for each in files for line in (_run(each) if isinstance(each, Given) else _peers(each)))


def plain_text(text: str) -> str:
    """A text on one line, with nothing in it that Markdown reads as its own."""
    one_line = " ".join(clean(cut(text, WORD_LETTERS)).split())
    return LIST.sub(r"\1\\\2", SPECIAL.sub(r"\\\1", one_line))


def _run(given: Given) -> Iterator[str]:
    yield f"# {plain_text(given.run.model)}\n"
    yield plain_text(" · ".join(filter(None, (given.name, place_and_time(given.run.provenance))))) + "\n"
    told = [f"* {'**failed** ' if each.bad else ''}{plain_text(each.text)}" for each in notices(given)]
    yield from [*told, ""] if told else []
    for part in given.parts:
        yield from _workload(part)


def _workload(part: Part) -> Iterator[str]:
    found = verdict(part)
    yield f"## {plain_text(part.workload)}\n"
    yield f"**{plain_text(found.lead)}**" + "".join(f" {plain_text(sentence)}" for sentence in found.more) + "\n"
    order = [ALL, *part.tasks]
    cells = sorted(part.cells, key=lambda each: (order.index(each.task), each.streams, part.methods.index(each.method)))
    yield from _table(HEAD, [_row(each) for each in cells[:MOST_ROWS]])
    if len(cells) > MOST_ROWS:
        yield f"{len(cells) - MOST_ROWS:,} rows more are not shown.\n"


def _row(each: Cell) -> list[str]:
    times = [each.token_ms.get(name) for name in ("median", "p90", "p99")]
    failed = f", {each.num_failed:,} failed" if each.num_failed else ""
    return [
        plain_text(each.method),
        plain_text(each.promise),
        "all" if each.task == ALL else plain_text(each.task),
        str(each.streams),
        MISSING if each.equal_share is None else share(each.equal_share),
        _quality(each),
        with_span(each.decode_rate),
        _ratio(each.decode_ratio),
        with_span(each.total_rate),
        _ratio(each.total_ratio),
        with_span(each.first_ms),
        " / ".join(MISSING if value is None else figure(value) for value in times),
        MISSING if each.peak_bytes is None else size(each.peak_bytes),
        MISSING if each.joules_per_token is None else with_span(each.joules_per_token),
        MISSING if each.acceptance_rate is None else share(each.acceptance_rate),
        MISSING if each.mean_exit_layer is None else figure(each.mean_exit_layer),
        f"{each.num_items:,}{failed}",
    ]


def _quality(each: Cell) -> str:
    """All metrics, each with its change where there is one."""
    told = []
    for metric, value in each.quality.items():
        changed = each.quality_change.get(metric)
        against = "" if changed is None else f", {with_span(changed, change)} against plain"
        told.append(f"{plain_text(metric_name(metric))} {figure(value.value)}{against}")
    return "; ".join(told) or MISSING


def _ratio(interval: Interval | None) -> str:
    return MISSING if interval is None else with_span(interval, ratio)


def _peers(peers: Peers) -> Iterator[str]:
    yield f"# Beside other engines\n\n{plain_text(peers.name)}\n"
    told = [f"* **failed** {plain_text(reason)}" for reason in peers.absent]
    yield from [*told, ""] if told else []
    if peers.comparisons:
        yield from _table(PEER_HEAD, [_peer_row(each) for each in peers.comparisons])
    if peers.num_hidden:
        yield f"{peers.num_hidden:,} comparisons more are not shown.\n"


def _peer_row(each: Comparison) -> list[str]:
    texts = [plain_text(text) or MISSING for text in (each.case, each.ours, each.peer, each.our_speed, each.peer_speed)]
    return [*texts, with_span(each.ratio, ratio)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(cells) + " |"
    yield ""
