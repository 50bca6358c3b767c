"""Other engines: bars by case, and their numbers."""

from __future__ import annotations

from offramp.bench.report.charts.ratios import Row, ratio_panel, ratio_scale
from offramp.bench.report.figures import MISSING, counted, ratio, span
from offramp.bench.report.html import Html, cut, element
from offramp.bench.report.peers import Comparison, Peers
from offramp.bench.report.sections.pieces import block, cell, heading, panel, panels, table
from offramp.bench.report.sections.provenance import place_and_time

REASON_LETTERS = 300
HEAD = ("case", "offramp", "other engine", "offramp's speed", "its speed", "offramp / it")


def peers_article(peers: Peers, place: int) -> Html:
    """One file of comparisons."""
    title = element("h2", "Beside other engines", id=f"file-{place}")
    about = element(
        "p", cut(" · ".join(filter(None, (peers.name, place_and_time(peers.measured)))), REASON_LETTERS), class_="about"
    )
    absent = [element("li", cut(reason, REASON_LETTERS), class_="bad") for reason in peers.absent]
    told = [element("ul", *absent, class_="notices")] if absent else []
    return element("article", title, about, *told, *_compared(peers))


def _compared(peers: Peers) -> list[Html]:
    if not peers.comparisons:
        return []
    cases: dict[str, list[Comparison]] = {}
    for each in peers.comparisons:
        cases.setdefault(each.case, []).append(each)
    rows = {name: [_bar(each) for each in group] for name, group in cases.items()}
    scale = ratio_scale([row for group in rows.values() for row in group])
    charts = [panel(name, ratio_panel(group, scale, f"offramp over others: {name}")) for name, group in rows.items()]
    note = "offramp's speed over the other engine's; to the right, offramp is faster. Lines are 95 % intervals."
    left = f" {counted(peers.num_hidden, 'comparison')} more are not shown." if peers.num_hidden else ""
    listed = table("Comparisons with other engines", HEAD, [_row(each) for each in peers.comparisons], words=HEAD[1:-1])
    return [block("By case", note + left, panels(charts)), block("All comparisons", "Small: 95 % intervals.", listed)]


def _bar(each: Comparison) -> Row:
    return Row(name=each.peer, exactness=None, ratio=each.ratio)


def _row(each: Comparison) -> list[Html]:
    return [
        heading(each.case),
        cell(each.ours or MISSING),
        cell(each.peer),
        cell(each.our_speed or MISSING),
        cell(each.peer_speed or MISSING),
        cell(ratio(each.ratio.value), each.ratio.value, below=span(each.ratio, ratio)),
    ]
