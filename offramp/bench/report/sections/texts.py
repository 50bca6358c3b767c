"""Generated text, each token coloured by the layers that ran for it or by whether a draft foresaw it."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.bench.report.charts.strip import SHADES, depth_strip, draft_strip, shade
from offramp.bench.report.figures import counted
from offramp.bench.report.given import Given, Part
from offramp.bench.report.html import Html, cut, element, joined
from offramp.bench.report.sections.pieces import block, method_mark
from offramp.bench.report.tokens import Origins, origins, samples
from offramp.bench.results.lines import ItemLine

MOST_PROMPTS = 2
MOST_METHODS = 6
MOST_TOKENS = 160
MOST_LETTERS = 2000
NAME_LETTERS = 80


def texts(given: Given, part: Part) -> list[Html]:
    """The first prompts of different tasks, answered by methods that draft or leave early."""
    items = [item for item in given.items if item.workload == part.workload and item.method in part.methods]
    chosen = samples(items, MOST_PROMPTS)
    if not chosen:
        return []
    deep = [layers for item in items for layers in item.exit_layers]
    ends = (min(deep, default=0), max(deep, default=0))
    shown = [_prompt(name, answers, given, ends) for name, answers in chosen.items()]
    note = (
        f"Answers to the first prompts of {counted(len(chosen), 'task')}. By layers: paler took fewer. By drafts: "
        "underlined tokens were foreseen, and verified by the model. Above each, a bar a token: as high as layers "
        "ran, or low where drafted."
    )
    return [block("What it looks like", note, *_shades(set(deep)), *shown)]


def _shades(layers: set[int]) -> list[Html]:
    """Which colour stands for how many layers; of many, the ends."""
    if not layers:
        return []
    ends = min(layers), max(layers)
    named = sorted(layers if len(layers) <= SHADES else ends)
    swatches = [element("li", element("span", str(count), class_=f"depth-{shade(count, *ends)}")) for count in named]
    return [element("ul", element("li", "layers run:"), *swatches, class_="legend text-legend")]


def _prompt(name: str, answers: Sequence[ItemLine], given: Given, ends: tuple[int, int]) -> Html:
    title = element("h5", cut(name, NAME_LETTERS))
    left = len(answers) - MOST_METHODS
    more = [element("p", f"{counted(left, 'method')} more are not shown.", class_="note")] if left > 0 else []
    shown = [_answer(item, given, ends) for item in answers[:MOST_METHODS]]
    return joined(title, element("div", *shown, class_="panels broad"), *more)


def _answer(item: ItemLine, given: Given, ends: tuple[int, int]) -> Html:
    came = origins(item)
    assert came is not None
    exactness = given.run.exactness.get(item.method, "")
    told = _told(came)
    caption = element(
        "figcaption",
        method_mark(item.method, exactness),
        element("b", item.method),
        element("span", told, class_="note"),
    )
    layers, drafted = came.layers[:MOST_TOKENS], came.drafted[:MOST_TOKENS]
    strip = depth_strip(layers, ends[1]) if layers else draft_strip(drafted)
    return element("figure", caption, strip, *_text(item, came, ends), class_="answer")


def _told(came: Origins) -> str:
    if came.layers:
        return f"{sum(came.layers) / len(came.layers):.1f} layers a token, {counted(len(came.layers), 'token')}"
    return f"{sum(came.drafted):,} of {counted(len(came.drafted), 'token')} from drafts"


def _text(item: ItemLine, came: Origins, ends: tuple[int, int]) -> list[Html]:
    """The answer, cut; token by token where the line tells what each of them wrote."""
    text = item.text or ""
    if len(item.pieces) != len(item.token_ids) or "".join(item.pieces) != text:
        plain = element("p", cut(text, MOST_LETTERS), class_="text", dir="auto")
        return [plain, element("p", "The file does not tell which token wrote what.", class_="note")]
    spans = [_span(piece, came, place, ends) for place, piece in enumerate(item.pieces[:MOST_TOKENS])]
    left = len(item.pieces) - len(spans)
    more = [element("p", f"{counted(left, 'token')} more are not shown.", class_="note")] if left > 0 else []
    return [element("p", *spans, class_="text", dir="auto"), *more]


def _span(piece: str, came: Origins, place: int, ends: tuple[int, int]) -> Html:
    if came.layers:
        layers = came.layers[place]
        return element("span", piece, class_=f"depth-{shade(layers, *ends)}", title=f"{layers} layers")
    if came.drafted[place]:
        return element("span", piece, class_="drafted", title="from a draft")
    return joined(piece)
