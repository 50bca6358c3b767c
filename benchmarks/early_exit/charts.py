"""Which charts go with the page, and their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.early_exit.plots import bar_chart, line_chart
from benchmarks.page import Json

FOLDER = "images"
"""Beside the page."""


def write_charts(lines: Sequence[Json], page: Path) -> dict[str, str]:
    """Write those that have figures; returns name -> Markdown for the page."""
    drawn = {
        "early-exit-agreement": ("Agreement by exit", _agreement(lines)),
        "early-exit-parser": ("Exact match and gain of what was tried", _tried(lines)),
        "early-exit-depths-parser": ("Depths of the parser's tokens", _depths("Parser", _parser_depths(lines))),
        "early-exit-depths-default": (
            "Depths of the default model's",
            _depths("Default model", _default_depths(lines)),
        ),
        "early-exit-predicted": ("Predicted and measured gain", _predicted(lines)),
    }
    shown = {}
    for name, (what, svg) in drawn.items():
        if svg:
            folder = page.parent / FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
            shown[name] = f"![{what}]({FOLDER}/{name}.svg)\n"
    return shown


def _agreement(lines: Sequence[Json]) -> str:
    series = {
        line["model"]: [(each["layer"], 100 * each["agree"]) for each in line["exits"]]
        for line in lines
        if line["result"] == "agreement"
    }
    return line_chart("Tokens on which an exit agrees with full depth", "layers run", "%", series) if series else ""


def _tried(lines: Sequence[Json]) -> str:
    """One stream: what each setting gained and lost on pairs seen in training."""
    series: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["result"] == "sweep" and line["streams"] == 1:
            name = f"{line['policy']['fill']}, {line['policy']['measure'].replace('_', ' ')}"
            lost = round(100 * (line["exact"] - line["full_exact"]), 2)
            series.setdefault(name, []).append((line["ratio"]["median"], lost))
    title = "Parser, one stream, pairs seen in training: what was tried"
    label = "points of exact match"
    return line_chart(title, "decode gain", label, series, marks_only=True) if series else ""


def _parser_depths(lines: Sequence[Json]) -> dict[str, Json]:
    """Of the chosen settings under `compact`."""
    return {
        line["cell"]: line["depths"] for line in lines if line["result"] == "cell" and line["batching"] == "compact"
    }


def _default_depths(lines: Sequence[Json]) -> dict[str, Json]:
    """Of the policies at one stream."""
    alone = [line for line in lines if line["result"] == "default" and line["streams"] == 1]
    return {f"risk {line['risk']:g}, {line['policy']['fill']}": line["depths"] for line in alone}


def _depths(model: str, chosen: Mapping[str, Json]) -> str:
    layers = sorted({int(layer) for depths in chosen.values() for layer in depths})
    series = {name: [100 * depths.get(str(layer), 0.0) for layer in layers] for name, depths in chosen.items()}
    title = f"{model}: tokens by layers run"
    return bar_chart(title, "layers", "%", [str(layer) for layer in layers], series) if series else ""


def _predicted(lines: Sequence[Json]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["result"] in ("cell", "default", "ladder") and line["ratio"]:
            model = "parser" if line["result"] == "cell" else line.get("model", "default")
            name = f"{model}, {line['streams']} stream{'s' * (line['streams'] > 1)}"
            series.setdefault(name, []).append((line["predicted"], line["ratio"]["median"]))
    title = "Gain: predicted by the cost model, and measured"
    return line_chart(title, "predicted", "measured", dict(sorted(series.items())), marks_only=True) if series else ""
