"""The whole page: one file that needs nothing else, no network and no script."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from offramp.bench.report.given import Given, Part
from offramp.bench.report.html import Html, cut, element, joined
from offramp.bench.report.notices import notices
from offramp.bench.report.peers import Peers
from offramp.bench.report.sections.costs import costs
from offramp.bench.report.sections.depths import depths
from offramp.bench.report.sections.drafts import acceptance
from offramp.bench.report.sections.figures import all_figures
from offramp.bench.report.sections.peers import peers_article
from offramp.bench.report.sections.provenance import place_and_time, provenance
from offramp.bench.report.sections.speed import by_streams, by_task, speed_and_quality
from offramp.bench.report.sections.texts import texts
from offramp.bench.report.verdict import verdict

FOLDER = Path(__file__).parent
STYLE, SCRIPT = "style.css", "sorting.js"
TITLE_LETTERS = 120
NAME_LETTERS = 200


def page(files: Sequence[Given | Peers]) -> str:
    """The files one after the other, as one HTML document."""
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in (STYLE, SCRIPT))
    title = cut(" · ".join(["offramp report", *_titles(files)]), TITLE_LETTERS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style)),
    )
    articles = [
        _run(each, place) if isinstance(each, Given) else peers_article(each, place)
        for place, each in enumerate(files, start=1)
    ]
    top = element("header", element("p", "offramp report", class_="brand"), *_contents(files))
    body = element("body", top, element("main", *articles), element("script", Html(script)))
    return joined(Html("<!doctype html>\n"), element("html", head, body, lang="en"), Html("\n"))


def _policy(style: str, script: str) -> str:
    """The page's own style and script may run, and nothing may be loaded."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _titles(files: Sequence[Given | Peers]) -> list[str]:
    """Models, each once."""
    return list(dict.fromkeys(each.run.model for each in files if isinstance(each, Given)))


def _contents(files: Sequence[Given | Peers]) -> list[Html]:
    """Where each file begins, if there are several."""
    if len(files) < 2:
        return []
    links = [
        element("li", element("a", _short(each), href=f"#file-{place}")) for place, each in enumerate(files, start=1)
    ]
    return [element("nav", element("ol", *links), aria_label="Files")]


def _short(file: Given | Peers) -> str:
    return cut(f"{file.run.model} ({file.name})" if isinstance(file, Given) else f"other engines ({file.name})", 80)


def _run(given: Given, place: int) -> Html:
    """One run: what it comes to, what went wrong, its workloads, what it was."""
    parts = given.parts
    about = " · ".join(filter(None, (given.name, place_and_time(given.run.provenance))))
    told = [element("li", each.text, class_="bad" if each.bad else None) for each in notices(given)]
    return element(
        "article",
        element("h2", cut(given.run.model, NAME_LETTERS), id=f"file-{place}"),
        element("p", cut(about, NAME_LETTERS), class_="about"),
        *([] if parts else [element("p", "No figure was measured.", class_="lead")]),
        *(_verdict(part, named=len(parts) > 1) for part in parts),
        *([element("ul", *told, class_="notices", aria_label="What to know of these figures")] if told else []),
        *(_workload(given, part) for part in parts),
        *costs(given),
        provenance(given),
    )


def _verdict(part: Part, *, named: bool) -> Html:
    found = verdict(part)
    name = [element("p", cut(part.workload, NAME_LETTERS), class_="eyebrow")] if named else []
    more = [element("p", sentence, class_="more") for sentence in found.more]
    return element("div", *name, element("p", found.lead, class_="lead"), *more, class_="verdict")


def _workload(given: Given, part: Part) -> Html:
    """The sections of one workload, those with something to show."""
    return element(
        "section",
        element("h3", element("span", "workload ", class_="soft"), cut(part.workload, NAME_LETTERS)),
        *speed_and_quality(part),
        *by_task(part),
        *by_streams(part),
        *acceptance(part),
        *depths(part),
        *texts(given, part),
        *all_figures(part),
    )
